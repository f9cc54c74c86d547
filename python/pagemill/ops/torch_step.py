"""What the torch references of the ops see of a step: its batch on the device, and the KV caches.

Importing this module imports torch; the faces of the ops do not import it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch


@dataclass(frozen=True, slots=True)
class TorchCache:
    """One layer's KV cache as two arrays of slots, `[slots, kv_heads, head_dim]`.

    The layout is the torch executor's own: the paged layout of `docs/program_format.md` serves the
    native kernels, and slot numbers mean the same in both.
    """

    key: torch.Tensor
    value: torch.Tensor


@dataclass(frozen=True, slots=True)
class Span:
    """Request `request` runs the step's tokens [begin, end) and has `context` tokens after it."""

    request: int
    begin: int
    end: int
    context: int


@dataclass(frozen=True, slots=True)
class DecodeGroup:
    """The requests that run one token each, computed together.

    `rows` [D]: their token in the step; `slots` [D, C]: the slot of each context position, padded
    to the longest context; `positions` [D, 1]: the position of the token.
    """

    rows: torch.Tensor
    slots: torch.Tensor
    positions: torch.Tensor


@dataclass(frozen=True, slots=True)
class Prefill:
    """One request that runs several tokens. `slots` [C]: the slot of each context position."""

    span: Span
    slots: torch.Tensor


@dataclass(frozen=True, slots=True)
class TorchStep:
    """A step's batch (`cc/ops/batch_view.h`), uploaded once; sizes are host integers, so that no op
    waits for the device."""

    inputs: Mapping[str, torch.Tensor]
    slot_mapping: torch.Tensor
    spans: Sequence[Span]
    decode: DecodeGroup | None
    prefills: Sequence[Prefill]


def make_step(batch: Mapping[str, np.ndarray], block_size: int, device: torch.device) -> TorchStep:
    """Upload `batch`: the int32 arrays of BatchView by name, `block_table` of rank 2."""
    starts = batch["query_start"].tolist()
    contexts = batch["seq_lens"].tolist()
    spans = [
        Span(request, starts[request], starts[request + 1], context)
        for request, context in enumerate(contexts)
    ]

    def upload(array: np.ndarray) -> torch.Tensor:
        # Indices are 64 bit in torch. A copy, since the caller may reuse its array after the step.
        return torch.as_tensor(array.astype(np.int64)).to(device, non_blocking=True)

    single = [span for span in spans if span.end - span.begin == 1]
    decode = None
    if single:
        longest = max(span.context for span in single)
        slots = _context_slots(batch["block_table"], block_size, [s.request for s in single])
        rows = np.array([span.begin for span in single])
        positions = np.array([[span.context - 1] for span in single])
        decode = DecodeGroup(upload(rows), upload(slots[:, :longest]), upload(positions))
    prefills = [
        Prefill(
            span,
            upload(
                _context_slots(batch["block_table"], block_size, [span.request])[0, : span.context]
            ),
        )
        for span in spans
        if span.end - span.begin > 1
    ]
    names = ("token_ids", "positions", "logits_rows")
    inputs = {name: upload(batch[name]) for name in names}
    return TorchStep(inputs, upload(batch["slot_mapping"]), spans, decode, prefills)


def _context_slots(block_table: np.ndarray, block_size: int, requests: Sequence[int]) -> np.ndarray:
    """The slot of each position of the blocks of `requests`, `[requests, blocks * block_size]`."""
    blocks = block_table[list(requests)].astype(np.int64)
    slots = blocks[:, :, None] * block_size + np.arange(block_size)
    return slots.reshape(len(requests), -1)
