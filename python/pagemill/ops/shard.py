"""A rank's part of a model."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum


class Axis(IntEnum):
    """The axes along which ranks divide work; the numbers are those of cc/comm/group.h."""

    TENSOR = 0
    """Each layer's matrices."""
    PIPELINE = 1
    """The layers."""
    DATA = 2
    """The requests."""
    EXPERT = 3
    """The experts of a layer."""


@dataclass(frozen=True, slots=True)
class Part:
    """Indices [begin, end) of a dimension of `total`."""

    begin: int
    end: int
    total: int

    @property
    def size(self) -> int:
        return self.end - self.begin

    @property
    def whole(self) -> bool:
        return self.size == self.total

    @property
    def indices(self) -> range:
        return range(self.begin, self.end)

    def times(self, size: int) -> Part:
        """The same part of a dimension that has `size` elements for each of this one."""
        return Part(self.begin * size, self.end * size, self.total * size)

    def within(self, total: int, first: int) -> Part:
        """The same elements in a dimension of `total`, of which this one begins at `first`."""
        return Part(first + self.begin, first + self.end, total)


@dataclass(frozen=True, slots=True)
class Stripe:
    """Row `index` of every `count` rows: gate and up of some experts lie row by row in turn."""

    index: int = 0
    count: int = 1


EVERY_ROW = Stripe()


@dataclass(frozen=True, slots=True)
class Shard:
    """Rank `rank` of a group of `ranks` along `axis`; by default the only one. With
    `whole_experts`, ranks divide the experts of a layer by number; else the features of each.

    Raises:
        ValueError: there is no such rank.
    """

    rank: int = 0
    ranks: int = 1
    axis: Axis = Axis.TENSOR
    whole_experts: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.rank < self.ranks:
            raise ValueError(f"a group of {self.ranks} ranks has no rank {self.rank}")

    def experts(self, count: int) -> Part:
        """The experts that this rank has of a layer's `count`.

        Raises:
            ValueError: ranks have whole experts, and there are fewer experts than ranks.
        """
        if not self.whole_experts:
            return Part(0, count, count)
        if count < self.ranks:
            raise ValueError(
                f"{count} experts cannot be divided among {self.ranks} ranks: leave out"
                f" --enable-expert-parallel, or use --tensor-parallel-size {count} or less"
            )
        return self.part(count)

    def expert_features(self, total: int, unit: int = 1) -> Part:
        """This rank's part of the `total` features of each expert that it has, in units as `part`.

        Raises:
            ValueError: there are fewer units than ranks.
        """
        return Part(0, total, total) if self.whole_experts else self.part(total, unit)

    def part(self, total: int, unit: int = 1) -> Part:
        """This rank's part of a dimension of `total`, in whole units of `unit` (the last part may
        end with a partial unit). Parts differ by at most one unit; `GatherBegin` of
        cc/ops/all_gather divides in the same way.

        Raises:
            ValueError: there are fewer units than ranks.
        """
        units = -(-total // unit)
        if units < self.ranks:
            raise ValueError(
                f"a dimension of {total} in units of {unit} cannot be divided among"
                f" {self.ranks} ranks; use --tensor-parallel-size {units} or less"
            )
        bounds = (units * rank // self.ranks * unit for rank in (self.rank, self.rank + 1))
        begin, end = (min(bound, total) for bound in bounds)
        return Part(begin, end, total)
