"""Builds step batches without an engine, for tests and benchmarks that call an executor directly.

    sequences = SimpleBatch(num_blocks=64, block_size=16)
    batch = sequences.step({0: [1, 5, 9], 1: [7]})      # request 0 runs three tokens, 1 runs one
    logits = executor(batch)["logits"]                  # one row for each request

A batch is the int32 arrays of a step by name (`cc/bindings/batch_arrays.h`).
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

Int32Array = npt.NDArray[np.int32]


class SimpleBatch:
    """Contexts and block tables of some requests. Blocks are allocated in a shuffled order (by
    `seed`), so that a kernel that ignores the block table gives wrong results.

    `block_size` is that of each of the executor's block tables, or of its only one; blocks are
    never evicted from a table. With `whole_prompts` the tokens of a request's first step, its
    prompt, see each other, if the program reads `item_ends`.
    """

    def __init__(
        self,
        num_blocks: int,
        block_size: int | Sequence[int],
        *,
        seed: int = 0,
        whole_prompts: bool = False,
    ) -> None:
        self._block_sizes = [block_size] if isinstance(block_size, int) else list(block_size)
        self._whole_prompts = whole_prompts
        self._free = list(range(1, num_blocks))  # block 0 is null
        random.Random(seed).shuffle(self._free)
        self._blocks: dict[int, list[list[int]]] = {}  # per table
        self._computed: dict[int, int] = {}

    def step(
        self,
        tokens: Mapping[int, Sequence[int]],
        *,
        all_logits: bool = False,
        second_texts: Mapping[int, int] = MappingProxyType({}),
    ) -> dict[str, Any]:
        """A batch that appends `tokens` to each request, in the mapping's order.

        Requests logits of each request's last token, or of every token. `second_texts` are the
        positions at which the second text of a pair begins.

        Raises:
            IndexError: no block is left.
        """
        token_ids: list[int] = []
        positions: list[int] = []
        slots: list[list[int]] = [[] for _ in self._block_sizes]
        query_start, seq_lens, logits_rows = [0], list[int](), list[int]()
        token_types: list[int] = []
        item_ends: list[int] = []
        for request, new in tokens.items():
            begin = self._computed.setdefault(request, 0)
            end = begin + len(new)
            tables = self._blocks.setdefault(request, [[] for _ in self._block_sizes])
            for blocks, size, table_slots in zip(tables, self._block_sizes, slots, strict=True):
                while len(blocks) * size < end:
                    blocks.append(self._free.pop())
                table_slots += [blocks[p // size] * size + p % size for p in range(begin, end)]
            token_ids += new
            positions += range(begin, end)
            second = second_texts.get(request, end)
            token_types += [int(position >= second) for position in range(begin, end)]
            item_ends += [end if self._whole_prompts and begin == 0 else 0] * len(new)
            self._computed[request] = end
            query_start.append(len(token_ids))
            seq_lens.append(end)
            first = query_start[-2] if all_logits else len(token_ids) - 1
            logits_rows += range(first, len(token_ids))
        arrays = {
            "token_ids": token_ids,
            "positions": positions,
            "query_start": query_start,
            "seq_lens": seq_lens,
            "logits_rows": logits_rows,
            "media_rows": [],
            "token_types": token_types,
            "item_ends": item_ends,
        }
        batch = {name: np.array(values, np.int32) for name, values in arrays.items()}
        kv = [
            {
                "block_size": size,
                "num_common_blocks": 0,
                "recent_states": 0,
                "slot_mapping": np.array(slots[table], np.int32),
                "block_table": self._block_table(list(tokens), table),
            }
            for table, size in enumerate(self._block_sizes)
        ]
        return batch | {"kv": kv}

    def rewind(self, request: int, num_tokens: int) -> None:
        """The next step replaces the request's tokens behind the first `num_tokens`."""
        self._computed[request] = num_tokens

    def free(self, request: int) -> None:
        """Remove a request and free its blocks."""
        self._free += itertools.chain(*self._blocks.pop(request))
        del self._computed[request]

    def _block_table(self, requests: Sequence[int], table: int) -> Int32Array:
        blocks = [self._blocks[request][table] for request in requests]
        rows = np.zeros((len(requests), max(map(len, blocks), default=0)), np.int32)
        for row, own in zip(rows, blocks, strict=True):
            row[: len(own)] = own
        return rows
