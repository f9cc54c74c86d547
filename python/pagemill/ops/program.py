"""A traced model: a straight list of ops over values (`docs/program_format.md`).

The data only; `program_text` reads and writes its text form, `trace` builds it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import NamedTuple

Dim = int | str  # a dimension of the step (DIMS) only as dimension 0
Shape = tuple[Dim, ...]

DIMS = ("tokens", "requests", "logits_rows", "media_rows", "text_rows")
GRID_DIMS = 3  # of the input grid_positions: time, row and column
ACT = "act"  # the dtype of activations, which each target binds
KV = "kv"  # the dtype of cached keys and values, which `kv_cache_dtype` binds
CONSTANTS_PATH = "@"  # the "file" whose bytes the program itself carries


@dataclass(frozen=True, slots=True)
class WeightEntry:
    """A tensor in file number `file`, `offset` bytes from its start; `row_stride` bytes from row to
    row if it is some columns of a wider matrix, 0 if rows follow each other; `column_stride` bytes
    from column to column if the file has the transposed matrix, 0 if columns follow each other."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    file: int
    offset: int
    row_stride: int = 0
    column_stride: int = 0


@dataclass(frozen=True, slots=True)
class StackEntry:
    """A weight [parts, ...] that is composed of others when the program is bound; `parts` are their
    names, weights of the same dtype."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    parts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Format:
    """How a checkpoint stores a quantized matrix (`cc/tensor/quantized.h`).

    `layout` is scaled, awq, gptq, gptq_v2, pack_quantized, mxfp4 or nvfp4; `block` is the rows and
    columns that share a scale and a zero point; `at` is the first row and column in the file's
    matrix, and `row_step` the rows between consecutive matrices of a stack;
    `quantized_activations`: the weights were made for activations of their own type, i8 or f8_e4m3.
    """

    layout: str
    block: tuple[int, int]
    at: tuple[int, int] = (0, 0)
    row_step: int = 0
    quantized_activations: bool = False

    def like(self, other: Format) -> bool:
        """True if both are alike, regardless of their position in larger matrices."""
        return replace(self, at=other.at, row_step=other.row_step) == other


class PartNames(NamedTuple):
    """The names of parts of a quantized weight, weights or stacks; None if there is none. `factor`
    is that of nvfp4."""

    values: str | None
    scales: str | None
    zeros: str | None = None
    groups: str | None = None
    factor: str | None = None


@dataclass(frozen=True, slots=True)
class QuantizedEntry:
    """A weight that is one operand and has parts."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    format: Format
    parts: PartNames


@dataclass(frozen=True, slots=True)
class GroupEntry:
    """Layers whose KV has the same lifetime; `kind` is one of cc/kv_cache/kinds, `window` the
    tokens that a query sees (0 = all)."""

    name: str
    kind: str
    window: int = 0


@dataclass(frozen=True, slots=True)
class CacheEntry:
    """The cache of one layer of `group`: `layout` is kv (dims: heads, head_dim), latent (width; or
    width and the tokens that a row stands for; or width, these, and the elements at the end of a
    row that a cache in fp8 has in bf16) or state (its shape); `dtype` is "kv" or a type of its
    own."""

    name: str
    group: str
    layout: str
    dtype: str
    dims: tuple[int, ...]

    @property
    def tokens_of_row(self) -> int:
        """The tokens that a row of a latent cache stands for: blocks have a multiple of them."""
        return self.dims[1] if self.layout == "latent" and len(self.dims) > 1 else 1

    @property
    def bf16_elements(self) -> int:
        """The elements at the end of a row of a latent cache that stay in bf16 in fp8."""
        return self.dims[2] if self.layout == "latent" and len(self.dims) > 2 else 0


def has_latents_alone(caches: Iterable[CacheEntry]) -> bool:
    """Whether the keys and values that `kv_cache_dtype` concerns are latents, of some cache."""
    return {cache.layout for cache in caches if cache.dtype == KV} == {"latent"}


@dataclass(frozen=True, slots=True)
class AdapterEntry:
    """The adapters of a layer whose weight is `shape` [out, in], or [experts, out, in]: a table
    that the executor keeps."""

    name: str
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ValueEntry:
    """A step input or a value that an op computes."""

    name: str
    dtype: str
    shape: Shape


@dataclass(frozen=True, slots=True)
class OpEntry:
    """One op; a missing optional operand is None."""

    op: str
    inputs: tuple[str | None, ...]
    outputs: tuple[str, ...]
    attributes: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, slots=True)
class OutputEntry:
    """What a step returns: `name` is "logits", "pooled", or names a value for the caller
    ("hidden.3")."""

    name: str
    value: str


@dataclass(slots=True)
class Program:
    """Lists in the order of the text form; file number i is `files[i]`."""

    files: list[str] = field(default_factory=list[str])
    weights: list[WeightEntry] = field(default_factory=list[WeightEntry])
    stacks: list[StackEntry] = field(default_factory=list[StackEntry])
    quantized: list[QuantizedEntry] = field(default_factory=list[QuantizedEntry])
    groups: list[GroupEntry] = field(default_factory=list[GroupEntry])
    caches: list[CacheEntry] = field(default_factory=list[CacheEntry])
    adapters: list[AdapterEntry] = field(default_factory=list[AdapterEntry])
    inputs: list[ValueEntry] = field(default_factory=list[ValueEntry])
    values: list[ValueEntry] = field(default_factory=list[ValueEntry])
    ops: list[OpEntry] = field(default_factory=list[OpEntry])
    outputs: list[OutputEntry] = field(default_factory=list[OutputEntry])
    constants: bytearray = field(default_factory=bytearray)

    def check_integrity(self) -> None:
        """Names are unique, operands exist, each value has one writer that precedes its readers.

        Raises:
            ValueError: with the name of the invalid op or value.
        """
        ready: set[str] = set()
        self._check_recipes()
        made = [*self.stacks, *self.quantized]
        for entry in [*self.weights, *made, *self.caches, *self.adapters, *self.inputs]:
            if entry.name in ready:
                raise ValueError(f"the name {entry.name!r} is declared twice")
            ready.add(entry.name)
        declared = {value.name for value in self.values}
        if len(declared) != len(self.values) or declared & ready:
            raise ValueError("two values, or a value and a weight, share a name")
        for index, op in enumerate(self.ops):
            for name in op.inputs:
                if name is not None and name not in ready:
                    raise ValueError(f"op {index} ({op.op}) reads {name!r} before it is written")
            for name in op.outputs:
                if name not in declared or name in ready:
                    raise ValueError(f"op {index} ({op.op}) writes {name!r}: undeclared or written")
                ready.add(name)
        for output in self.outputs:
            if output.value not in ready:
                raise ValueError(f"output {output.name} names {output.value!r}, never written")
        groups = {group.name for group in self.groups}
        for cache in self.caches:
            if cache.group not in groups:
                raise ValueError(f"cache {cache.name!r} is of group {cache.group!r}, undeclared")
        for weight in self.weights:
            if not 0 <= weight.file < len(self.files):
                raise ValueError(f"weight {weight.name!r} lies in file {weight.file}, undeclared")

    def _check_recipes(self) -> None:
        """Checks that the parts of weights are declared."""
        stored = {weight.name for weight in self.weights}
        parts = stored | {stack.name for stack in self.stacks}
        for made, known in [(self.stacks, stored), (self.quantized, parts)]:
            for weight in made:
                for part in weight.parts:
                    if part is not None and part not in known:
                        raise ValueError(f"weight {weight.name!r} is made of {part!r}, undeclared")
