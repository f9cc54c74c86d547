"""Typed access to a configuration, and the part of it that all decoders share."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self, cast

from pagemill.layers.attention import AttentionShape
from pagemill.layers.mlp import activation_kind
from pagemill.layers.rotary import RotaryTable, rotary_table
from pagemill.models.base import LIMIT, Config, ModelConfigError, ModelTraits
from pagemill.ops import ActivationKind
from pagemill.weights.json_file import shown

GPT2_KEYS = {
    "hidden_size": "n_embd",
    "num_hidden_layers": "n_layer",
    "num_attention_heads": "n_head",
    "max_position_embeddings": "n_positions",
    "intermediate_size": "n_inner",
    "hidden_act": "activation_function",
}
"""How GPT-2 names the sizes, and the families that came from it."""


_MOST_LAYERS = 2**12


class Renamed(Mapping[str, Any]):
    """`config` with the keys of `names` in place of those that they stand for, and `defaults` of
    absent ones.

    config = Renamed(config, GPT2_KEYS)
    """

    def __init__(
        self, config: Config, names: Mapping[str, str], defaults: Mapping[str, Any] | None = None
    ) -> None:
        self._config = config
        self._names = names
        self._defaults = defaults or {}

    def __getitem__(self, key: str) -> Any:
        name = self._names.get(key, key)
        if key in self._defaults and name not in self._config:
            return self._defaults[key]
        return self._config[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._config)

    def __len__(self) -> int:
        return len(self._config)


class Defaults(Mapping[str, Any]):
    """`config` with `values` in place of what is absent or null in it.

    config = Defaults(config, {"partial_rotary_factor": 0.5})
    """

    def __init__(self, config: Config, values: Mapping[str, Any]) -> None:
        self._config = config
        self._values = values

    def __getitem__(self, key: str) -> Any:
        value = self._config.get(key)
        return self._values[key] if value is None and key in self._values else self._config[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._config.keys() | self._values.keys())

    def __len__(self) -> int:
        return len(self._config.keys() | self._values.keys())


def inner_config(config: Config, key: str) -> Config:
    """The configuration of a part, such as a vision tower, in its whole model's.

    Raises:
        ModelConfigError: there is none.
    """
    part = config.get(key)
    if not isinstance(part, Mapping):
        raise ModelConfigError(f"the configuration needs {key} to be an object")
    return cast("Config", part)


def positive_int(config: Config, key: str, default: int | None = None) -> int:
    """The integer > 0 at `key`, at most 2^31 - 1; `default` if it is absent or null.

    Raises:
        ModelConfigError: it is missing without default, or no such number.
    """
    value = config.get(key)
    value = default if value is None else value
    if type(value) is not int or not 0 < value < 2**31:
        raise ModelConfigError(
            f"the configuration needs {key} > 0 and below 2^31, it has {shown(value)}"
        )
    return value


def number(
    config: Config, key: str, default: float, *, least: float = -1e6, most: float = 1e6
) -> float:
    """The number at `key`, from `least` to `most`; `default` if it is absent or null.

    Raises:
        ModelConfigError: it is not such a number.
    """
    value = config.get(key)
    value = default if value is None else value
    # The comparison is false for NaN, too.
    if type(value) not in (int, float) or not least <= value <= most:
        raise ModelConfigError(
            f"the configuration needs {key} from {least:g} to {most:g}, it has {shown(value)}"
        )
    return float(value)


def numbers(config: Config, key: str, count: int) -> tuple[float, ...]:
    """The `count` numbers at `key`; ones if it is absent or null.

    Raises:
        ModelConfigError: it is not a list of so many numbers.
    """
    value = config.get(key)
    entries = [1.0] * count if value is None else as_list(value)
    if entries is None or len(entries) != count:
        raise ModelConfigError(f"{key} must list {count} numbers, it is {shown(value)}")
    return tuple(number({key: entry}, key, 1.0) for entry in entries)


def token_id(config: Config, key: str, vocab_size: int) -> int:
    """The token `key`, one of a vocabulary of `vocab_size`.

    Raises:
        ModelConfigError: it is missing or not of the vocabulary.
    """
    token = config.get(key)
    if type(token) is not int or token < 0:
        raise ModelConfigError(f"the configuration needs a token as {key}, it has {shown(token)}")
    if token >= vocab_size:
        raise ModelConfigError(f"{key} is {token}, outside the vocabulary of {vocab_size}")
    return token


def epsilon(config: Config, key: str, default: float) -> float:
    """The value that a norm adds to the variance.

    Raises:
        ModelConfigError: it is not a number from 0 to 1.
    """
    return number(config, key, default, least=0.0, most=1.0)


def flag(config: Config, key: str, default: bool) -> bool:
    """The truth value at `key`; `default` if it is absent or null.

    Raises:
        ModelConfigError: it is neither true nor false.
    """
    value = config.get(key)
    value = default if value is None else value
    if not isinstance(value, bool):
        raise ModelConfigError(
            f"the configuration needs {key} to be true or false, it has {shown(value)}"
        )
    return value


def layer_types(config: Config, layers: int, known: Collection[str]) -> tuple[str, ...] | None:
    """The kind of each layer; None if the configuration does not list them.

    Raises:
        ModelConfigError: they are not `layers` names from `known`.
    """
    value = config.get("layer_types")
    if value is None:
        return None
    types = cast("list[Any]", value) if isinstance(value, list) else []
    if len(types) != layers or not all(isinstance(kind, str) and kind in known for kind in types):
        raise ModelConfigError(
            f"layer_types must list {layers} layers, each one of {', '.join(sorted(known))}"
        )
    return tuple(types)


SLIDING, FULL = "sliding_attention", "full_attention"


def windows_by_type(config: Config, layers: int, *, pattern: int = 0) -> tuple[int, ...]:
    """The window of each layer, 0 = full: `sliding_window` for those that `layer_types` lists as
    sliding. If it lists none, every `pattern`-th is full, and all with 0.

    Raises:
        ModelConfigError: the keys are missing or do not fit.
    """
    types = layer_types(config, layers, (SLIDING, FULL))
    if types is None:
        types = [SLIDING if pattern and (i + 1) % pattern else FULL for i in range(layers)]
    if SLIDING not in types:
        return (0,) * layers
    window = positive_int(config, "sliding_window")
    return tuple(window if kind == SLIDING else 0 for kind in types)


def attends_both_ways(config: Config, windows: Collection[int] = ()) -> bool:
    """Whether tokens attend to those behind them, too: if `is_causal` is false.

    Raises:
        ModelConfigError: some layers have `windows`, too, or it is neither true nor false.
    """
    both_ways = not flag(config, "is_causal", True)
    if both_ways and any(windows):
        raise ModelConfigError("is_causal=false is not supported with sliding windows")
    return both_ways


def window_or_full(config: Config) -> int:
    """The window of all layers; 0, full attention, if `sliding_window` is absent or null.

    Raises:
        ModelConfigError: it is not a number of tokens.
    """
    return 0 if config.get("sliding_window") is None else positive_int(config, "sliding_window")


def sliding_windows(config: Config, layers: int) -> tuple[int, ...]:
    """The window of each layer of a Qwen model, 0 = full: from `layer_types`, or
    `max_window_layers` and after.

    Raises:
        ModelConfigError: the keys are missing or do not fit.
    """
    if not flag(config, "use_sliding_window", False):
        return (0,) * layers
    window = positive_int(config, "sliding_window")
    types = layer_types(config, layers, (SLIDING, FULL))
    if types is None:
        first = number(config, "max_window_layers", layers)
        return tuple(window if layer >= first else 0 for layer in range(layers))
    return tuple(window if kind == SLIDING else 0 for kind in types)


def activation(config: Config, key: str, default: str) -> ActivationKind:
    """The activation that `key` names.

    Raises:
        ModelConfigError: there is none of this name.
    """
    name = config.get(key) or default
    try:
        return activation_kind(name if isinstance(name, str) else shown(name))
    except ValueError as error:
        raise ModelConfigError(f"{key}: {error}") from error


def refuse(config: Config, *keys: str) -> None:
    """Raise ModelConfigError if one of `keys` is set to an unsupported feature."""
    for key in keys:
        if config.get(key):
            raise ModelConfigError(f"{key}={shown(config[key])} is not supported by this family")


def rope_parameters(config: Config, layer_type: str | None = None) -> Mapping[str, Any]:
    """The rotary parameters; those of `layer_type` if they differ by layer.

    Newer checkpoints have one `rope_parameters` object (or one for each layer type); older ones
    have `rope_theta`, `rope_scaling` and, for sliding layers, `rope_local_base_freq`.
    """
    rope = _object(config, "rope_parameters")
    if rope is not None:
        if layer_type is None or layer_type not in rope and "rope_theta" in rope:
            return rope
        entry = _object(rope, layer_type)
        if entry is None:
            raise ModelConfigError(f"rope_parameters has no entry for {layer_type}")
        return entry
    if layer_type == "sliding_attention" and "rope_local_base_freq" in config:
        return {"rope_type": "default", "rope_theta": config["rope_local_base_freq"]}
    scaling = dict(_object(config, "rope_scaling") or {})
    if "type" in scaling:  # the key's first name
        scaling.setdefault("rope_type", scaling.pop("type"))
    rope = {"rope_type": "default", "rope_theta": config.get("rope_theta", 10000.0)}
    if config.get("original_max_position_embeddings") is not None:
        scaling.setdefault(
            "original_max_position_embeddings", config["original_max_position_embeddings"]
        )
    for key in ("partial_rotary_factor", "rotary_pct"):
        if config.get(key) is not None:
            rope["partial_rotary_factor"] = config[key]
    return rope | scaling


def _object(config: Config, key: str) -> Mapping[str, Any] | None:
    value = config.get(key)
    if value is not None and not isinstance(value, Mapping):
        raise ModelConfigError(f"the configuration needs {key} to be an object")
    return cast("Mapping[str, Any] | None", value)


def make_rotary_table(
    config: Config,
    head_dim: int,
    layer_type: str | None = None,
    *,
    base: float | None = None,
) -> RotaryTable:
    """The rotary table of the configuration, with another `base` if one is given.

    Raises:
        ModelConfigError: its parameters are missing or not supported.
    """
    positions = positive_int(config, "max_position_embeddings")
    rope = rope_parameters(config, layer_type)
    if base is not None:
        rope = {**rope, "rope_theta": base}
    if LIMIT in config:
        rope = {**rope, LIMIT: config[LIMIT]}
    try:
        return rotary_table(rope, head_dim, positions)
    except ValueError as error:
        raise ModelConfigError(f"rotary embedding: {error}") from error


def rotary_dim(config: Config, default: int) -> int:
    """The features of a head that rotate, `rotary_dim`; `default` if it is absent or null.

    Raises:
        ModelConfigError: it is not a positive number, or heads are narrower.
    """
    dim = positive_int(config, "rotary_dim", default)
    head_dim = positive_int(config, "hidden_size") // positive_int(config, "num_attention_heads")
    if dim > head_dim:
        raise ModelConfigError(f"rotary_dim is {dim}, of heads of {head_dim}")
    return dim


def has_positions(config: Config, layer_type: str | None) -> bool:
    """Whether keys of layers of this type have positions: not if its rotary parameters are null."""
    rope = _object(config, "rope_parameters")
    if rope is None or layer_type is None or layer_type not in rope:
        return True
    return rope[layer_type] is not None


def rotary_by_base(
    config: Config, tables: Sequence[RotaryTable | None], head_dim: int
) -> Sequence[RotaryTable | None]:
    """A table for each layer with the base that `layer_rope_theta` lists, None for 0; `tables` if
    it lists none.

    Raises:
        ModelConfigError: it does not list so many layers, or one is no base.
    """
    key = "layer_rope_theta"
    if config.get(key) is None:
        return tables
    listed = as_list(config[key])
    if listed is None or len(listed) != len(tables):
        raise ModelConfigError(f"{key} must list {len(tables)} layers, a base for each")
    bases = [number({key: base}, key, 0.0, least=0.0, most=1e12) for base in listed]
    known = {
        base: make_rotary_table(config, head_dim, base=base)
        for base in dict.fromkeys(bases)
        if base
    }
    return [known.get(base) for base in bases]


def as_list(value: object) -> list[Any] | None:
    """`value` if it is a list, else None."""
    return cast("list[Any]", value) if isinstance(value, list) else None


def square_side(config: Config, key: str) -> int:
    """The side at `key`, a number or two equal ones.

    Raises:
        ModelConfigError: it is missing, or that of no square.
    """
    value: object = config.get(key)
    sides = as_list(value) or [value]
    if len(set(map(str, sides))) != 1:
        raise ModelConfigError(f"{key} is {shown(value)}; it must be that of a square")
    return positive_int({key: sides[0]}, key)


def layer_numbers(config: Config, key: str) -> frozenset[int]:
    """The layers that `key` lists; none if it is absent or null.

    Raises:
        ModelConfigError: it is not a list of integers.
    """
    value = config.get(key)
    numbers = [] if value is None else as_list(value)
    if numbers is None or any(type(layer) is not int for layer in numbers):
        raise ModelConfigError(f"{key} must list layers, it is {shown(value)}")
    return frozenset(numbers)


def layer_count(config: Config, key: str = "num_hidden_layers", default: int | None = None) -> int:
    """The number of layers at `key`; `default` if it is absent or null.

    Raises:
        ModelConfigError: it is missing without default, no positive number, or too large.
    """
    layers = positive_int(config, key, default)
    if layers > _MOST_LAYERS:
        raise ModelConfigError(f"{key} is {layers}; at most {_MOST_LAYERS} layers")
    return layers


def layer_loops(config: Config, key: str, default: int, layers: int) -> int:
    """How many times the `layers` run: the number at `key`; `default` if it is absent or null.

    Raises:
        ModelConfigError: it is no positive number, or would make too many layers.
    """
    loops = positive_int(config, key, default)
    if loops * layers > _MOST_LAYERS:
        raise ModelConfigError(f"{key}={loops} of {layers} layers; at most {_MOST_LAYERS} layers")
    return loops


@dataclass(frozen=True, slots=True)
class DecoderSizes:
    """Sizes that every decoder's configuration has, under the same keys."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    max_positions: int
    norm_eps: float
    tied: bool

    @property
    def traits(self) -> ModelTraits:
        """The traits of a decoder that generates."""
        return ModelTraits(
            self.vocab_size, self.hidden_size, self.max_positions, causal=True, generates=True
        )

    def attention(
        self, *, scale: float | None = None, window: int = 0, soft_cap: float = 0.0
    ) -> AttentionShape:
        """The shape of a layer's attention; by default scores are divided by sqrt(head_dim)."""
        factor = self.head_dim**-0.5 if scale is None else scale
        return AttentionShape(self.heads, self.kv_heads, self.head_dim, factor, window, soft_cap)

    @classmethod
    def read(
        cls,
        config: Config,
        *,
        tied_by_default: bool = False,
        eps: tuple[str, float] = ("rms_norm_eps", 1e-6),
        mlp_ratio: int | None = None,
    ) -> Self:
        """Read them; `eps` is the key of what norms add to the variance, and its default;
        `mlp_ratio` times the hidden size is the intermediate size if none is stated.

        Raises:
            ModelConfigError: one is missing, or they do not fit each other.
        """
        hidden = positive_int(config, "hidden_size")
        heads = positive_int(config, "num_attention_heads")
        kv_heads = positive_int(config, "num_key_value_heads", heads)
        if heads % kv_heads:
            raise ModelConfigError(f"{heads} heads cannot share {kv_heads} key-value heads")
        return cls(
            vocab_size=positive_int(config, "vocab_size"),
            hidden_size=hidden,
            intermediate_size=positive_int(
                config, "intermediate_size", mlp_ratio and mlp_ratio * hidden
            ),
            layers=layer_count(config),
            heads=heads,
            kv_heads=kv_heads,
            head_dim=positive_int(config, "head_dim", hidden // heads),
            max_positions=positive_int(config, "max_position_embeddings"),
            norm_eps=epsilon(config, *eps),
            tied=flag(config, "tie_word_embeddings", tied_by_default),
        )
