"""A step as the torch references of the ops see it: its batch on the device, and the KV caches.

Importing this module imports torch; the ops' modules do not import it.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch


@dataclass(frozen=True, slots=True)
class TorchCache:
    """One layer's KV cache as two arrays of slots, `[slots, kv_heads, head_dim]`, addressed through
    block table `table` of the step.

    The layout is specific to the torch executor: native kernels use the paged layout of
    `docs/program_format.md`; slot numbers mean the same in both.
    """

    key: torch.Tensor
    value: torch.Tensor
    table: int = 0


@dataclass(frozen=True, slots=True)
class TorchState:
    """One layer's states: `pages` [pages, ...], addressed through block table `table` of the
    step."""

    pages: torch.Tensor
    table: int = 0

    def read(self, page: int) -> torch.Tensor:
        """The state in `page`; zeros for the null page."""
        return self.pages[page] if page else torch.zeros_like(self.pages[0])


@dataclass(frozen=True, slots=True)
class StateRun:
    """Advances the state in page `source` over tokens [begin, end) of the step into page
    `target`."""

    source: int
    target: int
    begin: int
    end: int


_GROUP = 128  # elements of a scale
_LARGEST_CODE = 448.0


class TorchF8Rows:
    """Rows of a latent cache in fp8, with the numbers of `cc/ops/latent_write/latent_f8_row.h`, in
    arrays of their own: e4m3 codes with a scale for each 128, and the last `rest` elements in
    bf16."""

    def __init__(self, rows: int, width: int, rest: int, device: torch.device) -> None:
        zeros = functools.partial(torch.zeros, device=device)
        self._codes = zeros((rows, width - rest), dtype=torch.float8_e4m3fn)
        self._scales = zeros((rows, -(-(width - rest) // _GROUP)))
        self._rest = zeros((rows, rest), dtype=torch.bfloat16)

    def __getitem__(self, indices: torch.Tensor) -> torch.Tensor:
        """indices [...] -> f32 [..., width]."""
        codes = self._codes.view(torch.uint8)[indices].view(torch.float8_e4m3fn)
        scales = self._scales[indices].repeat_interleave(_GROUP, -1)[..., : codes.shape[-1]]
        return torch.cat([codes.float() * scales, self._rest[indices].float()], -1)

    def __setitem__(self, indices: torch.Tensor, rows: torch.Tensor) -> None:
        """indices [n], rows [n, width]."""
        size = self._codes.shape[-1]
        padded = torch.nn.functional.pad(rows[:, :size].float(), (0, -size % _GROUP))
        groups = padded.reshape(len(rows), -1, _GROUP)
        largest = groups.abs().amax(-1)
        # largest = mantissa 2^exponent, 0.5 <= mantissa < 1, and 448 is 0.875 2^9.
        mantissa, exponent = torch.frexp(largest)
        scales = torch.exp2((exponent - 9 + (mantissa > 0.875).int()).clamp(-100, 100).float())
        scales = scales.where(largest.isfinite(), torch.nan)
        codes = (groups / scales[..., None]).clamp(-_LARGEST_CODE, _LARGEST_CODE).nan_to_num(0)
        codes = codes.flatten(1)[:, :size].to(torch.float8_e4m3fn)
        self._codes.view(torch.uint8).index_copy_(0, indices, codes.view(torch.uint8))
        self._scales.index_copy_(0, indices, scales)
        self._rest.index_copy_(0, indices, rows[:, size:].to(torch.bfloat16))


@dataclass(frozen=True, slots=True)
class TorchLatentCache:
    """One layer's latent cache as rows of slots, `[slots, width]`, as TorchCache; or with a row for
    each `tokens_of_row` slots. `rows` holds them, or stores them in fp8."""

    rows: torch.Tensor | TorchF8Rows
    table: int = 0
    tokens_of_row: int = 1

    def read(self, indices: torch.Tensor) -> torch.Tensor:
        """Rows in f32, [..., width]."""
        return self.rows[indices].float()

    def write(self, indices: torch.Tensor, rows: torch.Tensor) -> None:
        """Stores rows [n, width] at indices [n]."""
        if isinstance(self.rows, TorchF8Rows):
            self.rows[indices] = rows
        else:
            self.rows.index_copy_(0, indices, rows.to(self.rows.dtype))

    def rows_of(self, slots: torch.Tensor) -> torch.Tensor:
        """The indices of the rows of a context whose positions have these slots, [..., C] -> [...,
        rows]; the row of tokens that are not all there is none."""
        every = self.tokens_of_row
        return slots[..., every - 1 :: every] // every

    def visible(self, positions: torch.Tensor) -> torch.Tensor:
        """How many rows the tokens at these positions see."""
        return (positions + 1) // self.tokens_of_row


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

    `rows` [D]: their token in the step; `positions` [D, 1]: the position of the token.
    """

    rows: torch.Tensor
    positions: torch.Tensor


@dataclass(frozen=True, slots=True)
class TorchTable:
    """One block table of a step. `slot_mapping` [tokens]; `decode_slots` [D, C]: the slot of each
    context position, padded to the longest context; `prefill_slots`: [C] for each request with
    several tokens; `blocks`: the block table of each request, on the host; `recent_states`: its
    leading entries, pages of the newest states."""

    slot_mapping: torch.Tensor
    decode_slots: torch.Tensor | None
    prefill_slots: Sequence[torch.Tensor]
    block_size: int
    blocks: Sequence[Sequence[int]]
    recent_states: int

    def state_page(self, request: int, tokens: int, *, newest: bool) -> int:
        """The page of the state after `tokens` tokens of a request; 0 for none. A step begins and
        ends with one of the `newest`, which always have one."""
        blocks, recent = self.blocks[request], self.recent_states
        page = blocks[recent + (tokens - 1) // self.block_size]
        if tokens % self.block_size == 0 and (page or not newest):
            return page
        if not newest:
            return 0
        return blocks[tokens % recent] if recent else page


@dataclass(frozen=True, slots=True)
class TorchStep:
    """A step's batch (`cc/ops/batch_view.h`), uploaded once; sizes are host integers, so that no op
    waits for the device. `prefills` are the requests that run several tokens."""

    inputs: Mapping[str, torch.Tensor]
    spans: Sequence[Span]
    decode: DecodeGroup | None
    prefills: Sequence[Span]
    tables: Sequence[TorchTable]

    def state_runs(self, table: int) -> Iterator[StateRun]:
        """The pages that states are read from and written to (`cc/ops/states/state_pages.h`),
        requests in order."""
        states = self.tables[table]
        num_newest = max(1, states.recent_states)
        for span in self.spans:
            before, begin = span.context - (span.end - span.begin), span.begin
            source = states.state_page(span.request, before, newest=True) if before else 0
            for end in range(span.begin + 1, span.end + 1):
                newest = end > span.end - num_newest
                tokens = before + end - span.begin
                target = states.state_page(span.request, tokens, newest=newest)
                if target:
                    yield StateRun(source, target, begin, end)
                    source, begin = target, end


_NESTED = ("kv", "inputs")  # entries of a batch that are no arrays


def make_step(batch: Mapping[str, Any], device: torch.device) -> TorchStep:
    """Upload `batch`: the int32 arrays of a step by name, "kv" with those of each block table, and
    "inputs", if the program has others, by name."""
    starts = batch["query_start"].tolist()
    contexts = batch["seq_lens"].tolist()
    spans = [
        Span(request, starts[request], starts[request + 1], context)
        for request, context in enumerate(contexts)
    ]

    def upload(array: np.ndarray) -> torch.Tensor:
        # Indices are 64 bit in torch. Copied, since the caller may reuse its array after the step.
        return torch.as_tensor(array.astype(np.int64)).to(device, non_blocking=True)

    single = [span for span in spans if span.end - span.begin == 1]
    prefills = [span for span in spans if span.end - span.begin > 1]
    decode = None
    if single:
        rows = np.array([span.begin for span in single])
        positions = np.array([[span.context - 1] for span in single])
        decode = DecodeGroup(upload(rows), upload(positions))

    def table(kv: Mapping[str, Any]) -> TorchTable:
        longest = max((span.context for span in single), default=0)
        return TorchTable(
            upload(kv["slot_mapping"]),
            upload(_context_slots(kv, single)[:, :longest]) if single else None,
            [upload(_context_slots(kv, [span])[0, : span.context]) for span in prefills],
            kv["block_size"],
            kv["block_table"].tolist(),
            kv["recent_states"],
        )

    arrays = {name: upload(array) for name, array in batch.items() if name not in _NESTED}
    tensors = {
        name: torch.as_tensor(np.array(array)).to(device)
        for name, array in batch.get("inputs", {}).items()
    }
    return TorchStep(arrays | tensors, spans, decode, prefills, [table(kv) for kv in batch["kv"]])


def _context_slots(kv: Mapping[str, Any], spans: Sequence[Span]) -> np.ndarray:
    """The slot of each position of the requests' blocks, `[requests, blocks * block_size]`."""
    blocks = kv["block_table"][[span.request for span in spans]].astype(np.int64)
    block_size: int = kv["block_size"]
    slots = blocks[:, :, None] * block_size + np.arange(block_size)
    return slots.reshape(len(spans), -1)
