"""The interface of draft heads for the program builder.

A head is a program of its own beside that of the model it drafts for, its target. At the token of
position i it reads the token's id and the state of the token before it: what the target's program
returns as `draft_states` (draft_states.py), or behind drafts the head's own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from pagemill.layers.base import Weights
from pagemill.ops.trace import Tensor


@dataclass(frozen=True, slots=True)
class HeadWeights:
    """The weights of the head and those of its target, in one trace; the same for a head that lies
    in the target's checkpoint."""

    own: Weights
    target: Weights


@dataclass(frozen=True, slots=True)
class HeadInputs:
    """token_ids and positions, i32 [T], and the states of the tokens before, [T, width]."""

    token_ids: Tensor
    positions: Tensor
    states: Tensor


class HeadResults(NamedTuple):
    """Of some rows: the logits f32 [L, vocab_size], and the states [L, width] that the next drafts
    read."""

    logits: Tensor
    states: Tensor


class DraftHead(Protocol):
    """One head.

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
