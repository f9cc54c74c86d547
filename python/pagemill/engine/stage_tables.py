"""The block tables of a model whose layers are divided into stages.

The stages have pages of the same numbers, each in a KV cache of its own, and layouts of their own.
Tables of several stages that page alike (kind, tokens of a block, window, recent states) are one KV
group to the scheduler: one number then stands for a page on each of these stages.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from pagemill import _native


@dataclass(frozen=True, slots=True)
class StageTables:
    """The scheduler's KV groups, and for each stage which of them its own tables are, in order."""

    groups: list[_native.KvGroupOptions]
    of_stages: list[list[int]]

    @classmethod
    def of(cls, stages: Sequence[Sequence[_native.KvGroupOptions]]) -> StageTables:
        """Those of stages with these tables."""
        groups: list[_native.KvGroupOptions] = []
        places: dict[tuple[object, int], int] = {}  # of the n-th table of its kind in a stage
        of_stages: list[list[int]] = []
        for tables in stages:
            counts: Counter[object] = Counter()
            own: list[int] = []
            for table in tables:
                paging = (table.kind, table.block_size, table.window_tokens, table.recent_states)
                key = (paging, counts[paging])
                counts[paging] += 1
                if key not in places:
                    places[key] = len(groups)
                    groups.append(table)
                own.append(places[key])
            of_stages.append(own)
        return cls(groups, of_stages)
