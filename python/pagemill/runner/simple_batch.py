"""Makes step batches without an engine: for tests and measurements that drive an executor directly.

    sequences = SimpleBatch(num_blocks=64, block_size=16)
    batch = sequences.step({0: [1, 5, 9], 1: [7]})      # request 0 runs three tokens, 1 runs one
    logits, _ = executor(batch)                         # one row for each request

A batch is the int32 arrays of `cc/ops/batch_view.h` by name.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

Int32Array = npt.NDArray[np.int32]


class SimpleBatch:
    """Contexts and block tables of some requests. Blocks are handed out in a shuffled order (by
    `seed`), so that a kernel that ignores the block table gives wrong results."""

    def __init__(self, num_blocks: int, block_size: int, *, seed: int = 0) -> None:
        self._block_size = block_size
        self._free = list(range(1, num_blocks))  # block 0 is null
        random.Random(seed).shuffle(self._free)
        self._blocks: dict[int, list[int]] = {}
        self._computed: dict[int, int] = {}

    def step(
        self, tokens: Mapping[int, Sequence[int]], *, all_logits: bool = False
    ) -> dict[str, Int32Array]:
        """A batch that appends `tokens` to each request, in the mapping's order.

        Wants logits of each request's last token, or of every token.

        Raises:
            IndexError: no block is left.
        """
        token_ids: list[int] = []
        positions: list[int] = []
        slots: list[int] = []
        query_start, seq_lens, logits_rows = [0], list[int](), list[int]()
        for request, new in tokens.items():
            begin = self._computed.setdefault(request, 0)
            end = begin + len(new)
            blocks = self._blocks.setdefault(request, [])
            while len(blocks) * self._block_size < end:
                blocks.append(self._free.pop())
            token_ids += new
            positions += range(begin, end)
            slots += [self._slot(blocks, position) for position in range(begin, end)]
            self._computed[request] = end
            query_start.append(len(token_ids))
            seq_lens.append(end)
            first = query_start[-2] if all_logits else len(token_ids) - 1
            logits_rows += range(first, len(token_ids))
        arrays = {
            "token_ids": token_ids,
            "positions": positions,
            "slot_mapping": slots,
            "query_start": query_start,
            "seq_lens": seq_lens,
            "logits_rows": logits_rows,
        }
        batch = {name: np.array(values, np.int32) for name, values in arrays.items()}
        return batch | {"block_table": self._block_table(list(tokens))}

    def free(self, request: int) -> None:
        """Forget a request and take its blocks back."""
        self._free += self._blocks.pop(request)
        del self._computed[request]

    def _slot(self, blocks: Sequence[int], position: int) -> int:
        return blocks[position // self._block_size] * self._block_size + position % self._block_size

    def _block_table(self, requests: Sequence[int]) -> Int32Array:
        width = max((len(self._blocks[request]) for request in requests), default=0)
        table = np.zeros((len(requests), width), np.int32)
        for row, request in enumerate(requests):
            table[row, : len(self._blocks[request])] = self._blocks[request]
        return table
