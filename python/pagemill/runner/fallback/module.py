"""What a dry run found out about a module of `transformers`, and the memory that it takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

_BYTES = {"f32": 4, "bf16": 2, "f16": 2}


@dataclass(frozen=True, slots=True)
class LayerSpec:
    """One attention layer: `name` is its module's, `head_dim` that of keys, `value_dim` that of
    values; `window` tokens are visible to a query (0 = all); `scores`: its scores are computed in
    whole, since they have a soft cap or sinks."""

    name: str
    heads: int
    kv_heads: int
    head_dim: int
    value_dim: int
    window: int
    scores: bool

    @property
    def row_elements(self) -> int:
        """Numbers that a token takes in the KV cache. Keys and values are stored alike."""
        return 2 * self.kv_heads * max(self.head_dim, self.value_dim)


class Place(NamedTuple):
    """The cache of a layer: its block table, and its first number in a token's row of a page."""

    table: int
    offset: int


@dataclass(frozen=True, slots=True)
class PageLayout:
    """A page holds a block of tokens of some layers that see equally far: a row for each token. It
    has room for `row_elements` numbers for each token of the smallest block. `windows` and `times`
    have an entry for each block table, whose rows have `row_elements / times` numbers and whose
    blocks `times` as many tokens; `places` has one for each layer.
    """

    row_elements: int
    windows: tuple[int, ...]
    times: tuple[int, ...]
    places: tuple[Place, ...]

    @classmethod
    def of(cls, layers: Sequence[LayerSpec]) -> PageLayout:
        """The layout whose tables together take the fewest numbers for a token; among equals the
        one with the smallest pages."""
        totals: dict[int, int] = {}
        for layer in layers:
            totals[layer.window] = totals.get(layer.window, 0) + layer.row_elements
        least = max((layer.row_elements for layer in layers), default=0)
        layouts = [_place(layers, max(total, least)) for total in sorted(totals.values())]
        return min(layouts, key=_row_cost, default=cls(0, (), (), ()))


def _row_cost(layout: PageLayout) -> int:
    return sum(layout.row_elements // times for times in layout.times)


def _place(layers: Sequence[LayerSpec], row_elements: int) -> PageLayout:
    """Puts each layer in the first table of its window with room."""
    windows: list[int] = []
    used: list[int] = []
    places: list[Place] = []
    for layer in layers:
        size = layer.row_elements
        table = next(
            (
                index
                for index, window in enumerate(windows)
                if window == layer.window and used[index] + size <= row_elements
            ),
            len(windows),
        )
        if table == len(windows):
            windows.append(layer.window)
            used.append(0)
        places.append(Place(table, used[table]))
        used[table] += size
    times = tuple(_times(size, row_elements) for size in used)
    return PageLayout(row_elements, tuple(windows), times, tuple(places))


def _times(size: int, row_elements: int) -> int:
    """How many rows of `size` numbers fit in place of one: a power of two that divides it, so that
    rows lie at equal distances."""
    times = 1
    while row_elements % (2 * times) == 0 and 2 * times * size <= row_elements:
        times *= 2
    return times


class MemoryPlan(Protocol):
    """Bytes of a model under given limits, as the native planner states them too."""

    @property
    def weights_bytes(self) -> int: ...
    @property
    def packed_bytes(self) -> int: ...
    @property
    def offloaded_bytes(self) -> int: ...
    @property
    def activation_bytes(self) -> int: ...
    @property
    def workspace_bytes(self) -> int: ...
    @property
    def output_bytes(self) -> int: ...
    @property
    def kv_page_bytes(self) -> int: ...
    @property
    def kv_bytes(self) -> int: ...
    @property
    def total_bytes(self) -> int: ...


@dataclass(frozen=True, slots=True)
class ModuleMemory:
    """A `MemoryPlan` with a KV cache of one page. Weights, KV cache and outputs are exact; what the
    library allocates in a step is an estimate."""

    weights_bytes: int
    activation_bytes: int
    workspace_bytes: int
    output_bytes: int
    kv_page_bytes: int
    packed_bytes: int = 0
    offloaded_bytes: int = 0

    @property
    def kv_bytes(self) -> int:
        return self.kv_page_bytes

    @property
    def total_bytes(self) -> int:
        return (
            self.weights_bytes
            + self.activation_bytes
            + self.workspace_bytes
            + self.output_bytes
            + self.kv_bytes
        )


@dataclass(frozen=True, slots=True)
class BuiltModule:
    """A module of `transformers` that a dry run accepted.

    `config` is the configuration it is made of, `path` the directory of its weights, None = random
    ones; `pooling` is a kind of `layers.pooler`, None
    if it generates. `position_offset` is added to positions: embeddings of RoBERTa count from
    behind the padding token. `causal`: tokens see earlier ones, through the KV cache; otherwise all
    of their step.
    """

    config: Mapping[str, Any]
    path: Path | None
    layers: tuple[LayerSpec, ...]
    layout: PageLayout
    causal: bool
    pooling: str | None
    normalize: bool
    position_offset: int
    num_parameters: int
    widest: int
    """Numbers that a token takes in the widest layer."""
    output_size: int
    vocab_size: int

    def memory(
        self, dtype: str, kv_dtype: str, block_size: int, tokens: int, rows: int, context: int
    ) -> ModuleMemory:
        """The bytes with activations of `dtype` and a KV cache of `kv_dtype`, in steps of at most
        `tokens` tokens and `rows` rows of output, with requests of at most `context` tokens."""
        element = _BYTES[dtype]
        # Keys and values of a request are gathered; a mask, or in f32 scores and weights.
        heads = max((layer.heads for layer in self.layers), default=0)
        per_pair = 8 if any(layer.scores for layer in self.layers) else 1
        gathered = max((layer.row_elements for layer in self.layers), default=0) * context
        return ModuleMemory(
            weights_bytes=self.num_parameters * element,
            activation_bytes=tokens * self.widest * element,
            workspace_bytes=gathered * element + heads * tokens * context * per_pair,
            output_bytes=rows * self.output_size * 4,
            kv_page_bytes=self.layout.row_elements * block_size * _BYTES[kv_dtype],
        )
