"""The shape of a model, from a name, a config.json or a GGUF file."""

import dataclasses
import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pagemill.config import ConfigError
from pagemill.config.fields import did_you_mean
from pagemill.simulation.config import SimulatedModel
from pagemill.simulation.presets import MODELS, Model

if TYPE_CHECKING:
    from pagemill import _native

# Families whose MLP has no gate: two matrices.
_PLAIN_MLP = {"gpt2", "gpt_neox", "opt", "phi", "starcoder2"}
_EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts")


@dataclasses.dataclass(frozen=True, slots=True)
class ReadModel:
    """A shape, and what its weights take where that is known. `name` is for people."""

    name: str
    shape: Model
    weight_bytes: int | None  # read in each step


def read_model(config: SimulatedModel) -> ReadModel:
    """Returns the configured model.

    Raises:
      ConfigError: there is none of this name, or the simulator does not know its kind.
      WeightsError: a GGUF file is corrupt, or a config.json no JSON object.
    """
    if config.model in MODELS:
        return ReadModel(config.model, MODELS[config.model], None)
    path = Path(config.model).expanduser()
    if path.suffix == ".gguf":
        return _read_gguf(path)
    file = path / "config.json" if path.is_dir() else path
    if file.is_file():
        from pagemill.weights.json_file import read_object

        return ReadModel(str(path), shape_of(read_object(file), str(file)), None)
    close = did_you_mean(config.model, MODELS)
    raise ConfigError(
        f"--model: {config.model!r} is no file, directory or one of {', '.join(MODELS)}{close}"
    )


def shape_of(values: Mapping[str, Any], source: str) -> Model:
    """Returns the shape that the keys of a config.json say.

    Raises:
      ConfigError: a key is missing or no size, or the model has experts.
    """
    text = values.get("text_config")
    if isinstance(text, Mapping):  # of a model with media
        values = text  # pyright: ignore[reportUnknownVariableType]
    for key in _EXPERTS:
        if values.get(key):
            raise ConfigError(
                f"{source}: {key} is {values[key]}; the cost model has dense models only"
            )

    def number(*names: str, default: int | None = None) -> int:
        stated = [values[name] for name in names if values.get(name) is not None]
        value = stated[0] if stated else default
        if type(value) is not int or not 0 < value < 2**31:
            raise ConfigError(f"{source}: no {' or '.join(names)} from 1 to 2^31 - 1")
        return value

    hidden, heads = number("hidden_size", "n_embd"), number("num_attention_heads", "n_head")
    return Model(
        num_layers=number("num_hidden_layers", "n_layer"),
        hidden_size=hidden,
        num_heads=heads,
        num_kv_heads=number("num_key_value_heads", default=heads),
        head_size=number("head_dim", default=hidden // heads),
        intermediate_size=number("intermediate_size", "n_inner", default=4 * hidden),
        vocab_size=number("vocab_size"),
        tied_embeddings=bool(values.get("tie_word_embeddings", False)),
        source=source,
        num_mlp_matrices=2 if values.get("model_type") in _PLAIN_MLP else 3,
    )


def native_shape(model: ReadModel, config: SimulatedModel) -> "_native.SimModel":
    """Returns the shape as the simulator takes it."""
    from pagemill import _native

    shape = _native.SimModel()
    given = model.shape
    shape.num_layers = given.num_layers
    shape.hidden_size = given.hidden_size
    shape.num_heads = given.num_heads
    shape.num_kv_heads = given.num_kv_heads
    shape.head_size = given.head_size
    shape.intermediate_size = given.intermediate_size
    shape.num_mlp_matrices = given.num_mlp_matrices
    shape.vocab_size = given.vocab_size
    shape.kv_bits = config.kv_cache_bits
    shape.validate()
    if config.weight_bits is not None or model.weight_bytes is None:
        shape.weight_bytes = round(shape.num_weights * (config.weight_bits or 16) / 8)
    else:
        shape.weight_bytes = model.weight_bytes
    return shape


def stored_bytes(model: ReadModel, shape: "_native.SimModel") -> int:
    """Returns what the weights take in memory: input embeddings too where they are not tied."""
    if model.shape.tied_embeddings:
        return shape.weight_bytes
    embedding = model.shape.vocab_size * model.shape.hidden_size
    return shape.weight_bytes + shape.weight_bytes * embedding // shape.num_weights


def _read_gguf(path: Path) -> ReadModel:
    from pagemill.weights.source import ModelSource

    source = ModelSource.open(path)
    shape = shape_of(source.config, str(path))
    assert source.gguf is not None
    tensors = source.gguf.tensors.values()
    total = path.stat().st_size - min(tensor.offset for tensor in tensors)
    if not shape.tied_embeddings:
        # The input embedding is looked up, not read. Its share of the bytes is about that of the
        # elements.
        elements = sum(math.prod(tensor.shape) for tensor in tensors)
        total -= total * shape.vocab_size * shape.hidden_size // elements
    return ReadModel(str(path), shape, total)
