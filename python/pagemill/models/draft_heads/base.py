"""The interface of draft heads for the program builder.

A head is a program of its own beside that of the model it drafts for, its target. At the token of
position i it reads the token's id and the state of the token before it: what the target's program
returns as `draft_states` (draft_states.py), or behind drafts the head's own. In place of
placeholders of media it reads the embeddings that the target reads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from pagemill.layers.base import Weights
from pagemill.layers.rotary import Rotary, RotaryTable, bind_grid_rotary, bind_rotary
from pagemill.models.base import Config, ModelConfigError, StepInputs
from pagemill.models.multimodal.mrope import dims_of_pairs, has_sections
from pagemill.ops.trace import Tensor
from pagemill.weights.json_file import shown
from pagemill.weights.source import ModelSource


@dataclass(frozen=True, slots=True)
class HeadWeights:
    """The weights of the head and those of its target, in one trace; the same for a head that lies
    in the target's checkpoint."""

    own: Weights
    target: Weights


@dataclass(frozen=True, slots=True)
class MaskQueries:
    """How a drafter gives all drafts in one pass: behind the known tokens of a request come copies
    of the token `token_id`. Without `block` the row of the last known token gives the first draft,
    and those of the masks the others. With `block` each mask gives the draft in its place, masks
    and the last known token see each other, and of the tokens before these the program reads states
    alone."""

    token_id: int
    block: bool = False


@dataclass(frozen=True, slots=True)
class HeadInputs:
    """The arrays of the target that the head reads, too, and the states of the tokens before,
    [T, width]. For a head with `MaskQueries`, `marked` i32 [media_rows] are the masks, or with
    `block` the tokens whose own `states` [media_rows, width] are read; the others are
    `step.text_rows`."""

    step: StepInputs
    states: Tensor
    marked: Tensor | None = None


class HeadResults(NamedTuple):
    """Of some rows: the logits f32 [L, vocab_size], and the states [L, width] that the next drafts
    read."""

    logits: Tensor
    states: Tensor


def bind_head_rotary(
    weights: Weights,
    table: RotaryTable | None,
    step: StepInputs,
    config: Config,
    *,
    interleaved: bool,
) -> Rotary | None:
    """The rotary embedding of a head's layers. If tokens have positions of three dimensions, pairs
    rotate by those that `config` says, or all by the one in time.

    Raises:
        ModelConfigError: `config` says something else.
    """
    if table is None:
        return None
    if step.grid_positions is None:
        return bind_rotary(weights, "inv_freq", table, step.positions, interleaved=interleaved)
    pairs = len(table.inv_freq)
    dims = dims_of_pairs(config, pairs) if has_sections(config) else [0] * pairs
    return bind_grid_rotary(
        weights, "inv_freq", table, dims, step.grid_positions, interleaved=interleaved
    )


PARALLEL_KEYS = ("pard_token", "ptd_token_id")
"""The keys that configurations of PARD models and P-EAGLE heads have for it."""


def mask_token(source: ModelSource, config: Config, keys: Sequence[str], vocab_size: int) -> int:
    """The token that stands for drafts, by the first of `keys` that the `config` of `source` has.

    Raises:
        ModelConfigError: it has none, or the token is not one of the vocabulary.
    """
    for key in keys:
        value = config.get(key)
        if value is None:
            continue
        if type(value) is int and 0 <= value < vocab_size:
            return value
        raise ModelConfigError(
            f"{source.path}: {key} is {shown(value)}, which is not one of {vocab_size} tokens"
        )
    raise ModelConfigError(
        f"{source.path} was not trained to draft in parallel: its configuration has no"
        f" {' or '.join(keys)}; use a drafter that was"
    )


class DraftHead(Protocol):
    """One head.

    1. `width` is that of the states; `vocab_size` the number of the head's own columns, and
       `token_ids` the target's token of each, empty if they are the target's ids.
    2. `hidden` traces the head up to what the rows are chosen from, [T, width].
    3. `results` traces the rest on some rows of that, [L, width].
    4. `ignored`: as that of a `Model`, of the head's own tensors.
    5. `masks`, if it gives all drafts of a request in one pass.
    """

    width: int
    vocab_size: int
    token_ids: tuple[int, ...]
    ignored: Mapping[str, str]
    masks: MaskQueries | None

    def hidden(self, weights: HeadWeights, inputs: HeadInputs) -> Tensor: ...

    def results(self, weights: HeadWeights, rows: Tensor) -> HeadResults: ...


class JointHeads(Protocol):
    """Heads without attention that give all drafts of a request in one pass, from its last token
    and the state of the token before that: draft i is of head i.

    1. `width` is that of the states, `vocab_size` the target's.
    2. `logits` traces the heads for the rows that it chooses of `inputs` by `rows`, i32 [L], and
       returns f32 [L, vocab_size] of each.
    3. `ignored`: as that of a `Model`, of the heads' own tensors.
    """

    width: int
    vocab_size: int
    ignored: Mapping[str, str]

    def logits(
        self, weights: HeadWeights, token_ids: Tensor, states: Tensor, rows: Tensor
    ) -> list[Tensor]: ...
