"""A model as the stages of a pipeline: programs that each have a range of its layers.

    part = part_of(program, Stage(0, 2))    # the first half; the other part reads part.sends

A stage passes on values, to the next one alone (decision 0120). Layers are divided evenly; if their
number does not divide, the first stages have one more, because the last has the head. If layers
cannot be divided there (some share a cache), the nearest place is taken at which they can.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pagemill.layers.stack import RESULT
from pagemill.models.base import ModelConfigError
from pagemill.ops.cut import cut
from pagemill.ops.program import ACT, Program

_MOST_PASSED = 8  # what a message of ranks takes (cc/runner/ranks/step_message.cc)


@dataclass(frozen=True, slots=True)
class Stage:
    """Stage `index` of `count`, in the order of the layers."""

    index: int = 0
    count: int = 1

    @property
    def last(self) -> bool:
        return self.index + 1 == self.count


@dataclass(frozen=True, slots=True)
class StagePart:
    """A stage's program, and the inputs of the next stage's, which are values of it or before."""

    program: Program
    sends: tuple[str, ...] = ()


def part_of(program: Program, stage: Stage) -> StagePart:
    """The part of `program`, before any rewrite, that `stage` runs.

    Raises:
        ModelConfigError: the program takes media or embeddings, or has fewer places at which it can
            be divided than there are stages.
    """
    if stage.count == 1:
        return StagePart(program)
    if _received(program):
        raise ModelConfigError(
            f"--pipeline-parallel-size {stage.count}: stages take no media and no embeddings as"
            " prompts; use --language-model-only without --enable-prompt-embeds, or"
            " --pipeline-parallel-size 1"
        )
    num_layers = sum(_is_layer(value.name) for value in program.values)
    parts: list[Program] = []
    rest, first = program, 0  # the layer that `rest` begins with
    for left in range(stage.count, 1, -1):
        ideal = first + -(-(num_layers - first) // left)
        for end in _nearest(ideal, first + 1, num_layers - left + 1):
            divided = _divide(rest, end)
            if divided is not None:
                break
        else:
            raise ModelConfigError(
                f"--pipeline-parallel-size {stage.count}: the model's {num_layers} layers are not"
                " divided into so many stages: they are too few, or some share what stages do not"
                " pass on; use fewer"
            )
        part, rest = divided
        parts.append(part)
        first = end
    parts.append(rest)
    most = max(len(_received(part)) for part in parts[1:])
    if most > _MOST_PASSED:
        raise ModelConfigError(
            f"--pipeline-parallel-size {stage.count}: later layers read {most} values of earlier"
            f" ones; stages pass on at most {_MOST_PASSED}"
        )
    sends = () if stage.last else tuple(_received(parts[stage.index + 1]))
    return StagePart(parts[stage.index], sends)


def _is_layer(name: str) -> bool:
    return name.startswith(f"{RESULT}.")


def _nearest(ideal: int, least: int, most: int) -> Iterator[int]:
    """The numbers from `least` to `most`, those next to `ideal` first."""
    yield from sorted(range(least, most + 1), key=lambda end: abs(end - ideal))


def _divide(program: Program, end: int) -> tuple[Program, Program] | None:
    """The layers in front of layer `end`, and the others; None if they cannot be divided there, or
    if the second part reads a value that the first only passes on."""
    try:
        first, second = cut(program, f"{RESULT}.{end - 1}")
    except ValueError:
        return None
    has = {*_received(first), *(name for op in first.ops for name in op.outputs)}
    return (first, second) if has >= set(_received(second)) else None


def _received(program: Program) -> list[str]:
    """The inputs that are no arrays of a step, in order."""
    return [entry.name for entry in program.inputs if entry.dtype == ACT]
