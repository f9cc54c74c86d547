"""torchao: int8 or e4m3 weights with scales per tensor, row, group or block, as the library writes
its tensors to safetensors, `<module>._weight_qdata` and `_weight_scale`. Matrices of its packed
types are converted before a program is built (`at_load`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, Self, cast

from pagemill.quantization.base import Scheme
from pagemill.quantization.notes import STATIC_ACTIVATIONS, UNCONVERTED
from pagemill.quantization.patterns import Patterns
from pagemill.quantization.scaled import ScaledScheme
from pagemill.quantization.section import Section
from pagemill.quantization.unquantized import UNQUANTIZED
from pagemill.weights.location import TensorLocation
from pagemill.weights.read import is_zero

VALUES, SCALE, ZERO_POINT = "_weight_qdata", "_weight_scale", "_weight_zero_point"
_OF_ACTIVATIONS = ("_weight_act_quant_scale", "_weight_act_quant_zero_point")
_STATIC = "Int8StaticActivationInt8WeightConfig"
# The type of elements, and whether they were made for activations of that type.
_TYPES: Final[Mapping[str, tuple[str, bool]]] = {
    "Float8DynamicActivationFloat8WeightConfig": ("f8_e4m3", True),
    "Float8WeightOnlyConfig": ("f8_e4m3", False),
    "Int8DynamicActivationInt8WeightConfig": ("i8", True),
    _STATIC: ("i8", True),
    "Int8WeightOnlyConfig": ("i8", False),
}
_BY_NAME = ("FqnToConfig", "ModuleFqnToConfig")
_ENTRIES = ("fqn_to_config", "module_fqn_to_config")  # the older name is the second
_REST = "_default"
_PATTERN = "re:"
_MAX_ENTRIES = 1 << 16
_SUPPORTED = (
    f"{', '.join(_TYPES)}; the packed integers of Int4WeightOnlyConfig, IntxWeightOnlyConfig and"
    f" Int8DynamicActivationIntxWeightConfig {UNCONVERTED}"
)


class TorchAo:
    """A module has the scheme stated for its name or its weight's, else of the first pattern that
    matches one of these as a whole, else the one of all others. Modules that were left as they are
    have a `weight`, whatever is stated."""

    parts = frozenset((VALUES, SCALE, ZERO_POINT))

    def __init__(self, named: Mapping[str, Scheme], rest: Scheme, notes: tuple[str, ...]) -> None:
        self._named = named
        listed = [name.removeprefix(_PATTERN) for name in named if name.startswith(_PATTERN)]
        self._patterns = Patterns([f"(?:{pattern})$" for pattern in listed])
        self._of_patterns = [named[f"{_PATTERN}{pattern}"] for pattern in listed]
        self._rest = rest
        self.notes = notes

    @classmethod
    def from_section(cls, section: Section) -> Self:
        embeddings = section.get("include_input_output_embeddings") or False
        section.require("include_input_output_embeddings", embeddings, {False: "false"})
        if not isinstance(section.get("quant_type"), Mapping):
            raise section.refuse(
                "quant_type",
                section.get("quant_type"),
                "objects, as torchao 0.15 and later writes them to safetensors",
            )
        stated = section.section("quant_type").section("default")
        if stated.get("_type") not in _BY_NAME:
            return cls({}, _scheme(stated), _notes([stated]))
        fields = stated.section("_data")
        name = next((entry for entry in _ENTRIES if fields.get(entry)), _ENTRIES[0])
        entries = fields.section(name)
        if len(entries.entries) > _MAX_ENTRIES:
            raise fields.refuse(name, len(entries.entries), f"at most {_MAX_ENTRIES} entries")
        listed = {key: entries.section(key) for key in entries.entries}  # null: not quantized
        schemes = {
            key: _scheme(entry) if entry.entries else UNQUANTIZED for key, entry in listed.items()
        }
        rest = schemes.pop(_REST, UNQUANTIZED)
        return cls(schemes, rest, _notes(listed.values()))

    def scheme(self, module: str) -> Scheme:
        names = (f"{module}.weight", module)
        for name in names:
            if name in self._named:
                return self._named[name]
        found = [place for name in names if (place := self._patterns.first(name)) is not None]
        return self._of_patterns[min(found)] if found else self._rest

    def may_ignore(self, tensor: TensorLocation) -> bool:
        if tensor.name.endswith(f".{ZERO_POINT}"):
            return is_zero(tensor)
        return tensor.name.endswith(_OF_ACTIVATIONS)


def _notes(stated: Iterable[Section]) -> tuple[str, ...]:
    static = any(entry.get("_type") == _STATIC for entry in stated)
    return (STATIC_ACTIVATIONS,) if static else ()


def _scheme(stated: Section) -> Scheme:
    kind = stated.get("_type")
    if not isinstance(kind, str) or kind not in _TYPES:
        raise stated.refuse("_type", kind, _SUPPORTED)
    dtype, activations = _TYPES[kind]
    fields = stated.section("_data")
    if dtype == "f8_e4m3":
        number = fields.section("weight_dtype").get("_data")
        fields.require("weight_dtype", number, {"float8_e4m3fn": "float8_e4m3fn"})
        layout = fields.section("packing_format").get("_data", "PLAIN")
        fields.require("packing_format", layout, {"PLAIN": "PLAIN"})
    return ScaledScheme(
        stated.method, dtype, _block(fields), activations, suffixes=(SCALE,), values=VALUES
    )


def _block(fields: Section) -> tuple[int, int] | None:
    """Rows and columns that share a scale; None if a row or the matrix does."""
    value = fields.get("granularity")
    if isinstance(value, list) and value:  # that of activations, and of weights
        value = cast("list[Any]", value)[-1]
    if value is None:
        return None
    granularity = Section(fields.method, {"granularity": value}, fields.path).section("granularity")
    numbers = granularity.section("_data")
    kind = granularity.get("_type")
    known = ("PerRow", "PerTensor", "PerGroup", "PerBlock")
    granularity.require("_type", kind, {name: name for name in known})
    if kind == "PerGroup":
        sizes = {"block_size": [1, numbers.get("group_size")]}
        return Section(numbers.method, sizes, numbers.path).block("block_size")
    return numbers.block("block_size") if kind == "PerBlock" else None
