"""The interface of draft heads for the program builder.

A head is a program of its own beside that of the model it drafts for, its target. At the token of
position i it reads the token's id and the state of the token before it: what the target's program
returns as `draft_states` (draft_states.py), or behind drafts the head's own. In place of
placeholders of media it reads the embeddings that the target reads.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from pagemill.layers.base import Weights
from pagemill.layers.rotary import Rotary, RotaryTable, bind_grid_rotary, bind_rotary
from pagemill.models.base import Config, StepInputs
from pagemill.models.multimodal.mrope import dims_of_pairs, has_sections
from pagemill.ops.trace import Tensor


@dataclass(frozen=True, slots=True)
class HeadWeights:
    """The weights of the head and those of its target, in one trace; the same for a head that lies
    in the target's checkpoint."""

    own: Weights
    target: Weights


@dataclass(frozen=True, slots=True)
class HeadInputs:
    """The arrays of the target that the head reads, too, and the states of the tokens before,
    [T, width]."""

    step: StepInputs
    states: Tensor


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


class DraftHead(Protocol):
    """One head, which gives a draft in each pass.

    1. `width` is that of the states; `vocab_size` the number of the head's own columns, and
       `token_ids` the target's token of each, empty if they are the target's ids.
    2. `hidden` traces the head up to what the rows are chosen from, [T, width].
    3. `results` traces the rest on some rows of that, [L, width].
    4. `ignored`: as that of a `Model`, of the head's own tensors.
    """

    width: int
    vocab_size: int
    token_ids: tuple[int, ...]
    ignored: Mapping[str, str]

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
