"""AutoRound: the layout of GPTQ or AWQ, by `packing_format`; modules that are listed in
`extra_config` may have another number of bits or size of groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self, cast

from pagemill.quantization.base import Scheme
from pagemill.quantization.module_names import ModuleNames
from pagemill.quantization.packed import PARTS, PackedScheme
from pagemill.quantization.patterns import Patterns
from pagemill.quantization.section import Section
from pagemill.quantization.unquantized import UNQUANTIZED
from pagemill.weights.location import TensorLocation
from pagemill.weights.read import is_zero

_METHOD = "auto-round"
# Layouts of program text. AutoRound's own packers are not among them: some of its versions stored
# zero points as they are and others minus one, under one name.
_LAYOUTS = {
    "auto_awq": "awq",
    "auto_gptq": "gptq",
    "auto_round:auto_awq": "awq",
    "auto_round:auto_gptq": "gptq",
    "auto_round:awq": "awq",
    "auto_round:gptq": "gptq",
}
_DEFAULT_PACKING = "auto_round:auto_gptq"
_BITS = {"awq": (4,), "gptq": (2, 3, 4, 8)}
_NOT_QUANTIZED = 16  # bits from which on a matrix stays as it is
_ACTIVATION_FIELDS = (
    *("act_bits", "act_data_type", "act_dynamic", "act_group_size", "act_sym"),
    *("super_bits", "super_group_size"),
)
_OWN_FIELDS = ("bits", "data_type", "group_size", "sym", *_ACTIVATION_FIELDS)
_BLOCKS = ("block_name_to_quantize", "to_quant_block_names")
_OF_PATTERNS = frozenset("*+?^$()[]{}|\\")


class AutoRound:
    """The scheme that `extra_config` states for a module's name, else that of the first of its
    patterns that occurs in the name, else that of all modules of the listed blocks."""

    notes = ()
    parts = PARTS

    def __init__(
        self,
        scheme: Scheme,
        own: Mapping[str, Scheme],
        blocks: ModuleNames | None,
        excluded: ModuleNames,
    ) -> None:
        """`own`: by names and patterns of modules; `blocks` None: all modules."""
        self._scheme = scheme
        self._own = own
        patterns = [name for name in own if _OF_PATTERNS.intersection(name)]
        self._patterns = Patterns([f".*(?:{pattern})" for pattern in patterns])
        self._of_patterns = [own[pattern] for pattern in patterns]
        self._blocks = blocks
        self._excluded = excluded

    @classmethod
    def from_section(cls, section: Section) -> Self:
        packing = section.get("packing_format", _DEFAULT_PACKING)
        section.require("packing_format", packing, {name: name for name in _LAYOUTS})
        layout = _LAYOUTS[packing]
        extra = section.section("extra_config")
        own = {
            name: _scheme(section, extra.section(name), layout)
            for name in extra.entries
            if extra.section(name).entries
        }
        blocks = _blocks(section)
        excluded = ModuleNames(section.strings("modules_to_not_convert"))
        named = None if blocks is None else ModuleNames(blocks)
        return cls(_scheme(section, section, layout), own, named, excluded)

    def scheme(self, module: str) -> Scheme:
        if module in self._own:
            return self._own[module]
        pattern = self._patterns.first(module)
        if pattern is not None:
            return self._of_patterns[pattern]
        if module in self._excluded or (self._blocks is not None and module not in self._blocks):
            return UNQUANTIZED
        return self._scheme

    def may_ignore(self, tensor: TensorLocation) -> bool:
        # Biases of zeros, as beside GPTQ's matrices.
        return tensor.name.endswith(".bias") and is_zero(tensor)


def _scheme(section: Section, own: Section, layout: str) -> Scheme:
    """The scheme of `section` with the fields of `own` in place of its fields."""
    if own is not section:
        for name in own.entries.keys() - set(_OWN_FIELDS):
            raise own.refuse(name, own.get(name), ", ".join(_OWN_FIELDS))

    def value(name: str, default: object = None) -> Any:
        return own.get(name, section.get(name, default))

    bits = value("bits")
    if own is not section and type(bits) is int and bits >= _NOT_QUANTIZED:
        return UNQUANTIZED
    own.require("data_type", value("data_type", "int"), {"int": "int"})
    own.require("sym", value("sym", True), {True: "true", False: "false"})
    of_activations = value("act_bits") or _NOT_QUANTIZED
    if type(of_activations) is not int or of_activations < _NOT_QUANTIZED:
        raise own.refuse("act_bits", of_activations, f"{_NOT_QUANTIZED}: they are not quantized")
    group = own.group("group_size", value("group_size"))
    return PackedScheme(_METHOD, layout, own.bits("bits", bits, _BITS[layout]), group)


def _blocks(section: Section) -> Sequence[str] | None:
    """The names of blocks whose modules are quantized: a list, perhaps of lists, or names with
    commas between them; None if the configuration lists none."""
    name = next((name for name in _BLOCKS if section.get(name)), None)
    if name is None:
        return None
    value: object = section.get(name)
    listed = value.split(",") if isinstance(value, str) else value
    names: list[object] = []
    for entry in cast("list[object]", listed) if isinstance(listed, list) else [None]:
        names += cast("list[object]", entry) if isinstance(entry, list) else [entry]
    if not all(isinstance(entry, str) and entry for entry in names):
        raise section.refuse(name, value, "names of blocks")
    return [str(entry).strip() for entry in names]
