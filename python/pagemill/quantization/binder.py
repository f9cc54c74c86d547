"""Declares a source's tensors in a trace, under the names and in the forms that ops need.

    weights = WeightBinder(Trace(), ModelSource.open(path))
    weights.linear("model.layers.0.mlp.down_proj", (576, 1536))  # a Tensor, perhaps with a format

The configuration says how a matrix may be stored (`Method.scheme`); its tensors say how it is
stored (`StoredSchemes`). Quantized data is never read as if it were not quantized.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from pagemill.ops.expert_layer import ExpertLayer
from pagemill.ops.head_tables import HeadTables
from pagemill.ops.shard import EVERY_ROW, Part, Shard, Stripe
from pagemill.ops.trace import Tensor, Trace, format_shape
from pagemill.quantization import kv_scales
from pagemill.quantization.adapter_tables import AdapterTables
from pagemill.quantization.computed_tensors import batch_norm_line, exponentials, inverse_norms
from pagemill.quantization.mxfp4 import Mxfp4Scheme
from pagemill.quantization.notes import OTHER_SCALES
from pagemill.quantization.stored_schemes import StoredSchemes
from pagemill.quantization.table import source_method
from pagemill.quantization.unused import check_all_used
from pagemill.tensor.dtypes import DTYPES, SCALED_DTYPES, tensor_bytes
from pagemill.weights.adapter_target import AdapterTarget
from pagemill.weights.declared import DeclaredTensors
from pagemill.weights.errors import WeightsError
from pagemill.weights.location import TensorLocation
from pagemill.weights.name_prefixes import NamePrefixes
from pagemill.weights.read import read_f32
from pagemill.weights.source import ModelSource


class WeightBinder:
    """The `Weights` of layers (`layers.base`): binds one source to the trace of one rank.

    Methods that read a tensor raise WeightsError if it is missing, or of another shape or type than
    the configuration says. They take names of the part of a model that this is `within`; tensors,
    schemes, adapters and messages have whole names.

    Raises:
        QuantizationError: the configuration's quantization is not supported.
    """

    def __init__(
        self,
        trace: Trace,
        source: ModelSource,
        shard: Shard | None = None,
        adapter_slots: Tensor | None = None,
    ) -> None:
        """`adapter_slots` i32 [tokens] is an input of the trace if linear layers are to have
        adapters."""
        self.trace = trace
        self.shard = shard or Shard()
        self.read_as_values: set[tuple[str, int]] = set()  # files and offsets of tensors
        self.claimed: set[str] = set()  # tensors that are not read here
        self._adapters = AdapterTables(trace, adapter_slots)
        self._source = source
        self._names = NamePrefixes()
        self._method = source_method(source)
        self._tensors = DeclaredTensors(trace, source)
        self._schemes = StoredSchemes(self._method, source, self._tensors)
        for text in self._method.notes:
            self.note(text)

    @property
    def adapter_targets(self) -> list[AdapterTarget]:
        """What adapters may change."""
        return self._adapters.targets

    @property
    def notes(self) -> list[str]:
        """Notes for the operator."""
        return self._tensors.notes

    def note(self, text: str) -> None:
        """Record a note for the operator, once."""
        self._tensors.note(text)

    def within(self, prefix: str, *, behind: str = "") -> WeightBinder:
        """These weights, under the names of a part of the model."""
        part = copy.copy(self)
        part._names = self._names.within(prefix, behind)
        return part

    def has(self, name: str) -> bool:
        """True if the source has a tensor of this name, or parts of it, or the matrices of a stack
        of this name one by one."""
        name = self._names.whole(name)
        module = name.removesuffix(".weight")
        if self._tensors.has(name) or self._schemes.is_divided(module):
            return True
        return module != name and self._schemes.has(module)

    def claim(self, name: str) -> None:
        """Marks a tensor as used that belongs to another rank, or that nothing needs."""
        self._locate(name)
        self.claimed.add(self._names.whole(name))

    def claim_all(self, other: WeightBinder) -> None:
        """Marks the tensors that another program of the same model uses, or has claimed."""
        self._tensors.claim_all(other._tensors)
        self.claimed |= other.claimed

    def block_elements(self, name: str) -> int:
        """The number of elements of a row of the matrix `name` that are stored together."""
        name = self._names.whole(name)
        module = name.removesuffix(".weight")
        stack = self._tensors.peek(module)
        if stack is not None and not self._tensors.has(name):
            return DTYPES[stack.dtype].block_elements
        if self._schemes.is_divided(module):
            module = f"{module}.0"
        return self._schemes.of(module).block_elements(self._tensors, module)

    def linear(
        self,
        module: str,
        shape: tuple[int, int],
        *,
        rows: Part | None = None,
        columns: Part | None = None,
        transposed: bool = False,
    ) -> Tensor:
        """The weight of the linear layer `module`, [out, in], as it is stored; or some of its rows
        or columns, perhaps all. If `transposed`, it is stored as [in, out], unless it is quantized.

        Raises:
            WeightsError: it is missing, or of another shape or type than the configuration says, or
                the columns would cut a block of its type.
        """
        name = self._names.whole(module)
        if transposed and not self._schemes.is_quantized(name):
            return self.turned_matrix(f"{module}.weight", shape, rows=rows, columns=columns)
        return self._schemes.of(name).operand(self._tensors, name, shape, rows, columns)

    def turned_matrix(
        self,
        name: str,
        shape: tuple[int, int],
        *,
        rows: Part | None = None,
        columns: Part | None = None,
        stored: tuple[int, ...] | None = None,
    ) -> Tensor:
        turned = (shape[1], shape[0])
        location = self._locate(name)
        if stored is None:
            location = location.as_matrix(turned)
        self._check_unscaled(location)
        self._check_shape(location, stored or turned)
        return self._tensors.transposed(replace(location, shape=turned), rows, columns)

    def matrix(
        self,
        name: str,
        shape: tuple[int, int],
        *,
        rows: Part | None = None,
        columns: Part | None = None,
    ) -> Tensor:
        """As `linear`, for the weight `name` of an op that takes no separate scales: `embedding`.

        Raises:
            WeightsError: as `linear`, or it has scales beside it.
        """
        location = self._tensors.peek(self._names.whole(name))
        if location is not None:
            self._check_unscaled(location)
        return self.linear(name.removesuffix(".weight"), shape, rows=rows, columns=columns)

    def stack(
        self,
        experts: str,
        module: str,
        shape: tuple[int, int, int],
        *,
        matrices: Part | None = None,
        rows: Part | None = None,
        columns: Part | None = None,
    ) -> Tensor:
        """The weights of `module` of all experts, [experts, out, in], or some of these `matrices`,
        or of each some rows or some columns: one tensor `<experts>.<module>.weight`, or without
        `.weight`, as it is stored, its matrices side by side or one below the other, or each
        transposed; or made of `<experts>.<i>.<module>.weight` or `<experts>.<module>.<i>.weight`.

        Raises:
            WeightsError: one is missing, or of another shape or type, or the columns would cut a
                block of its type.
        """
        experts = self._names.whole(experts)
        whole = f"{experts}.{module}.weight"
        if not self._tensors.has(whole):
            whole = f"{experts}.{module}"
        if self._tensors.has(whole):
            location = self._tensors.locate(whole).as_stack(shape)
            self._check_unscaled(location)
            turned = (shape[0], shape[2], shape[1])
            if location.shape == turned != shape:
                return self._tensors.turned_stack(location.some(matrices), EVERY_ROW, rows, columns)
            self._check_shape(location, shape)
            return self._tensors.stored_stack(location.some(matrices), rows, columns)
        chosen = range(shape[0]) if matrices is None else matrices.indices
        stem, end = f"{experts}.", f".{module}"
        if self._schemes.is_divided(f"{experts}.{module}"):
            stem, end = f"{experts}.{module}.", ""
        modules = [f"{stem}{i}{end}" for i in range(shape[0])]
        own = [modules[i] for i in chosen]
        self._tensors.claim_modules(set(modules) - set(own))
        parts = [
            self._schemes.of(name).operand(self._tensors, name, shape[1:], rows, columns)
            for name in own
        ]
        # A layer may have two stacks, of the first experts and of others.
        range_of = f"{chosen[0]}-{chosen[-1]}." if chosen[0] else ""
        name = parts[0].name.replace(f"{stem}{chosen[0]}.", stem + range_of, 1)
        return self._tensors.stack(name, parts)

    def turned_stack(
        self,
        name: str,
        shape: tuple[int, int, int],
        *,
        stripe: Stripe = EVERY_ROW,
        matrices: Part | None = None,
        rows: Part | None = None,
        columns: Part | None = None,
    ) -> Tensor:
        """The weights of all experts, [experts, out, in], or some of these `matrices`, or a part of
        each, in one tensor that has `stripe.count` such weights row by row in turn: `name`, stored
        transposed, [experts, in, stripe.count * out], its blocks and scales, if the model is
        quantized to MXFP4, or quantized matrices `<name>.<i>`, which are not transposed.

        Raises:
            WeightsError: it is missing, or of another shape or type, or the columns would cut a
                block of its type.
        """
        whole = self._names.whole(name)
        scheme = self._schemes.stated(whole)
        if isinstance(scheme, Mxfp4Scheme) and scheme.stores(self._tensors, whole):
            return scheme.stack(self._tensors, whole, shape, stripe, matrices, rows, columns)
        if self._schemes.is_divided(whole) and stripe == EVERY_ROW:
            experts, _, module = name.rpartition(".")
            return self.stack(experts, module, shape, matrices=matrices, rows=rows, columns=columns)
        stored = (shape[0], shape[2], stripe.count * shape[1])
        location = self._locate(name).as_stack(stored)
        self._check_unscaled(location)
        self._check_shape(location, stored)
        return self._tensors.turned_stack(location.some(matrices), stripe, rows, columns)

    def turned_vectors(
        self,
        name: str,
        shape: tuple[int, int],
        *,
        stripe: Stripe = EVERY_ROW,
        matrices: Part | None = None,
        part: Part | None = None,
    ) -> Tensor:
        """The biases of `turned_stack`, f32 [experts, out], or those of some `matrices`, or a part
        of each."""
        location = self._located(name, (shape[0], stripe.count * shape[1]))
        matrices = matrices or Part(0, shape[0], shape[0])
        part = part or Part(0, shape[1], shape[1])
        values = read_f32(location)[matrices.begin : matrices.end, stripe.index :: stripe.count]
        key = f"{name}.{stripe.index}.matrices{matrices.begin}-{matrices.end}"
        key += f".part{part.begin}-{part.end}"
        return self._constant(key, values[:, part.begin : part.end])

    def adapted(
        self,
        module: str,
        x: Tensor,
        y: Tensor,
        *,
        rows: Part | None = None,
        columns: Part | None = None,
    ) -> Tensor:
        """y, what `module` makes of x, with what the adapters of each token make of x. As it is if
        the program has no adapters, or the layer computes nothing of tokens."""
        target = AdapterTarget.of(self._names.whole(module), rows, columns)
        return self._adapters.apply(target, (y.width, x.width), x, y)

    def adapted_embedding(
        self, module: str, ids: Tensor, y: Tensor, count: int, *, scale: float = 1.0
    ) -> Tensor:
        """As `adapted`, for y, the rows `ids` i32 [N] of an embedding with `count` rows, times
        `scale`."""
        name = self._names.whole(module)
        target = AdapterTarget.of(name, None, None, embedding=True, scale=scale)
        return self._adapters.apply(target, (y.width, count), ids, y)

    def adapted_experts(
        self,
        layer: ExpertLayer,
        ids: Tensor,
        x: Tensor,
        y: Tensor,
        *,
        rows: Part | None = None,
        columns: Part | None = None,
    ) -> Tensor:
        """As `adapted`, for y [N, choices, ...], what the experts `ids` make of x in a layer."""
        layer = replace(
            layer,
            container=self._names.whole(layer.container),
            owner=self._names.whole(layer.owner),
        )
        target = AdapterTarget.of(layer.name, rows, columns, experts=layer)
        features = x.width if len(x.shape) == 2 else x.width // ids.width
        shape = (layer.experts.size, y.width // ids.width, features)
        return self._adapters.apply(target, shape, x, y, ids)

    def head_matrices(self, module: str, width: int, *, heads: Part, rows: Part) -> Tensor:
        """The weight of the linear layer `module`, [heads.total * rows.total, width], as a matrix
        for each head: of the heads in `heads` the rows in `rows`, [heads.size, rows.size, width].
        What is stored as a matrix is used where it lies.

        Raises:
            WeightsError: it is missing, of another shape than the configuration says, or has scales
                beside it.
        """
        name = self._names.whole(module)
        return self._schemes.of(name).head_matrices(self._tensors, name, width, heads, rows)

    def patches(self, module: str, shape: tuple[int, ...]) -> Tensor:
        """The weight of the convolution `module`, `shape`, as a matrix with a row per output."""
        return self.reshaped(f"{module}.weight", shape, (shape[0], math.prod(shape[1:])))

    def reshaped(self, name: str, stored: tuple[int, ...], shape: tuple[int, int]) -> Tensor:
        """The tensor `name`, stored in the shape `stored`, as a matrix of `shape`."""
        return self._tensors.matrix(replace(self._located(name, stored), shape=shape))

    def column_stripe(self, name: str, shape: tuple[int, ...], stripe: Stripe) -> Tensor:
        location = self._locate(name)
        self._check_unscaled(location)
        self._check_shape(location, shape)
        rows = (shape[0], math.prod(shape[1:]))
        return self._tensors.column_stripe(replace(location, shape=rows), stripe)

    def vector(
        self,
        name: str,
        length: int,
        *,
        part: Part | None = None,
        stored: tuple[int, ...] | None = None,
    ) -> Tensor:
        """A norm or bias, f32 [length], or a part of it; stored so, or in the shape `stored`."""
        location = self._locate(name)
        self._check_unscaled(location)
        if stored is None or not location.fits((length,)):
            self._check_shape(location, stored or (length,))
        return self._tensors.vector(location, part or Part(0, length, length))

    def small(
        self,
        name: str,
        shape: tuple[int, ...],
        *,
        row_factors: Sequence[float] = (),
        row_order: Sequence[int] = (),
    ) -> Tensor:
        """A small weight that is neither matrix nor vector, f32 of `shape`; each row times its
        factor, if there are factors, and in `row_order`, if there is one."""
        location = self._located(name, shape)
        if all(factor == 1 for factor in row_factors):
            if not row_order:
                return self._tensors.small(location, shape)
            rows = Part(row_order[0], row_order[-1] + 1, shape[0])
            if list(row_order) == list(rows.indices):
                return self._tensors.small(location, shape, rows)
        values = read_f32(location).reshape(shape)
        if row_factors:
            factors = np.array(row_factors, dtype=np.float32)
            values = values * factors.reshape(-1, *(1,) * (len(shape) - 1))
        if row_order:
            values = values[np.array(row_order)]
        return self._constant(f"{name}.changed", values)

    def vectors(self, names: Sequence[str | None], length: int, *, table: bool = False) -> Tensor:
        """Vectors of this length, f32 [len(names) * length], or a table of them; None: zeros."""
        values = [np.zeros(length, np.float32)] * len(names)
        for index, name in enumerate(names):
            if name is not None:
                values[index] = read_f32(self._located(name, (length,))).reshape(length)
        joined = (np.stack if table else np.concatenate)(values)
        return self._constant(f"{names[0]}.and_{len(names) - 1}", joined)

    def integers(self, name: str, shape: tuple[int, ...]) -> Tensor:
        """Whole numbers that are no weights, stored as integers or as real numbers: f32 of `shape`.

        Raises:
            WeightsError: they are missing, of another shape or type, or not exact in f32.
        """
        return self._tensors.integers(self._names.whole(name), shape)

    def inverse_norms(self, name: str, shape: tuple[int, int]) -> Tensor:
        """1 over the Euclidean norm of each row of the matrix `name`: f32 [rows]."""
        location = self._located(name, shape)
        return self._constant(f"{name}.inverse_norms", inverse_norms(location, shape))

    def normalized_taps(
        self, module: str, norm: str, shape: tuple[int, int], eps: float, *, bias: bool = False
    ) -> tuple[Tensor, Tensor]:
        """The depthwise convolution `module`, which has a `bias` or none, and the batch norm `norm`
        behind it as one, f32 of `shape` [channels, taps], and its bias."""
        channels, taps = shape
        stored = read_f32(self._located(f"{module}.weight", (channels, 1, taps))).reshape(shape)
        parts = ("weight", "bias", "running_mean", "running_var")
        of_norm = (read_f32(self._located(f"{norm}.{part}", (channels,))) for part in parts)
        factor, shift = batch_norm_line(*of_norm, eps=eps)
        if bias:
            shift = shift + factor * read_f32(self._located(f"{module}.bias", (channels,)))
        return (
            self._constant(f"{module}.normalized", stored * factor[:, None]),
            self._constant(f"{norm}.shift", shift),
        )

    def exponentials(self, name: str, factors: Sequence[float]) -> Tensor:
        """Each of `factors` times e to the power of its entry of the vector `name`, f32.

        Raises:
            WeightsError: it is missing, or of another length or type, or a product is not finite.
        """
        location = self._located(name, (len(factors),))
        products = exponentials(read_f32(location), factors)
        if not np.isfinite(products).all():
            raise WeightsError(
                f"{self._source.path}: {location.name} has an entry that is too large, or NaN"
            )
        return self._constant(f"{name}.exponentials", products)

    def softplus(self, name: str, length: int, *, repeats: int = 1) -> Tensor:
        """ln(1 + e^v) of each entry v of a vector, so many times one after the other, f32.

        Raises:
            WeightsError: it is missing, or of another length or type.
        """
        found = np.logaddexp(np.float32(0), read_f32(self._located(name, (length,))))
        return self._constant(f"{name}.softplus{repeats}", np.tile(found, repeats))

    def combined_rows(
        self, name: str, shape: tuple[int, int], sums: Sequence[Mapping[int, float]]
    ) -> Tensor:
        """Sums of some rows of the matrix `name` of `shape`, each row times a factor: f32 [sums,
        shape[1]].

        Raises:
            WeightsError: the matrix is missing or of another shape, or has no such row.
        """
        location = self._located(name, shape)
        result = np.zeros((len(sums), shape[1]), np.float32)
        row_bytes = tensor_bytes(location.dtype, (1, shape[1]))
        for into, factors in zip(result, sums, strict=True):
            for index, factor in factors.items():
                if not 0 <= index < shape[0]:
                    raise WeightsError(f"{self._source.path}: {location.name} has no row {index}")
                at = location.offset + index * row_bytes
                into += factor * read_f32(replace(location, shape=(1, shape[1]), offset=at))[0]
        return self._constant(f"{name}.sums", result)

    def computed(
        self,
        name: str,
        shape: tuple[int, ...],
        stored: Mapping[str, tuple[int, ...]],
        compute: Callable[..., npt.NDArray[np.float32]],
    ) -> Tensor:
        """The f32 constant `name` of `shape`: what `compute` returns for the tensors of these names
        and shapes, in their order, each as f32."""
        values = [read_f32(self._located(each, its)).reshape(its) for each, its in stored.items()]
        return self._constant(name, np.ascontiguousarray(compute(*values)).reshape(shape))

    def head_tables(self, tables: HeadTables) -> Tensor:
        """The `tables`, f32.

        Raises:
            WeightsError: a tensor is missing, or of another shape or type.
        """
        tables = tables.renamed(self._names.whole)
        found = {
            name: self._checked(self._tensors.locate(name), shape)
            for name, shape in tables.stored_shapes().items()
        }
        self.read_as_values |= {(each.file, each.offset) for each in found.values()}
        stored = {name: read_f32(location) for name, location in found.items()}
        return self._tensors.constant(tables.name, tables.computed(stored))

    def constant(self, name: str, values: Sequence[float] | Sequence[Sequence[float]]) -> Tensor:
        """The f32 constant `name`, declared once; `values` are f32 numbers already."""
        return self._constant(name, np.asarray(values, dtype=np.float32))

    def index(self, name: str, values: npt.NDArray[np.int32]) -> Tensor:
        """The i32 constant `name` of indices, declared once; parts of a model share it."""
        return self._tensors.index(name, values)

    def number(self, name: str, *, finite: bool = True) -> float:
        """The only element of the tensor `name`.

        Raises:
            WeightsError: it is missing, has more elements or another type, or is not a number, or
                infinite and has to be `finite`.
        """
        location = self._locate(name)
        self._check_unscaled(location)
        if location.shape != ():
            self._check_shape(location, (1,))
        value = float(read_f32(location).reshape(()))
        if math.isnan(value) or (finite and math.isinf(value)):
            wanted = "a finite number" if finite else "a number"
            raise WeightsError(f"{self._source.path}: {location.name} is {value}, not {wanted}")
        return value

    def kv_scales(self, module: str) -> tuple[float, float]:
        """The checkpoint's scales of keys and of values of the attention layer `module`; 1 if it
        does not have both.

        Raises:
            WeightsError: one is not a number > 0.
        """
        return kv_scales.kv_scales(self._tensors, self._names.whole(module))

    def check_all_used(self, ignored: Mapping[str, str]) -> None:
        """Rejects a model with tensors that nothing has used; call it after tracing the whole
        model. `ignored` are those of the family (`Model.ignored`).

        Raises:
            UnusedTensorError: there are such tensors.
        """
        if check_all_used(self._source, self._method, self._tensors.claimed(), ignored):
            self.note(OTHER_SCALES)

    def _locate(self, name: str) -> TensorLocation:
        return self._tensors.locate(self._names.whole(name))

    def _constant(self, name: str, values: np.ndarray) -> Tensor:
        return self._tensors.constant(self._names.whole(name), values)

    def _located(self, name: str, shape: tuple[int, ...]) -> TensorLocation:
        """The tensor `name`, of this shape and without scales beside it."""
        return self._checked(self._locate(name), shape)

    def _checked(self, location: TensorLocation, shape: tuple[int, ...]) -> TensorLocation:
        self._check_unscaled(location)
        self._check_shape(location, shape)
        return location

    def _check_unscaled(self, location: TensorLocation) -> None:
        """Only the matrices of linear layers may have scales beside them."""
        if location.dtype in SCALED_DTYPES:
            raise WeightsError(
                f"{self._source.path}: {location.name} is stored as {location.dtype}, which is"
                " supported for linear layers only; leave this tensor unquantized"
            )

    def _check_shape(self, location: TensorLocation, shape: tuple[int, ...]) -> None:
        if not location.fits(shape):
            raise WeightsError(
                f"{self._source.path}: {location.name} is {format_shape(location.shape)}, the"
                f" configuration asks for {format_shape(shape)}"
            )
