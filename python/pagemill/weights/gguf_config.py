"""Converts GGUF metadata to the form of a Hugging Face `config.json`, so that a model family reads
one kind of configuration for all weights."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from pagemill.weights.errors import WeightsError
from pagemill.weights.gguf import GgufFile
from pagemill.weights.json_file import shown
from pagemill.weights.read import read_f32

Config = dict[str, Any]

GGUF_ARCHITECTURES: Mapping[str, tuple[str, ...]] = {
    "gemma3": ("Gemma3ForCausalLM",),
    "llama": ("LlamaForCausalLM", "MixtralForCausalLM"),  # the second with experts
    "qwen2": ("Qwen2ForCausalLM",),
    "qwen3": ("Qwen3ForCausalLM",),
    "qwen3moe": ("Qwen3MoeForCausalLM",),
}
"""Names of architectures in GGUF files, and in config.json."""

_TOKENIZER = "tokenizer.ggml."
_TOKENIZER_TYPES: dict[str, tuple[type, type | None]] = {
    "merges": (list, str),
    "model": (str, None),
    "pre": (str, None),
    "scores": (list, float),
    "token_type": (list, int),
    "tokens": (list, str),
}
_CONTROL = 3  # of token_type
_ENDS_OF_TEXT = ("<|endoftext|>", "<|end_of_text|>")
_MAX_PIECE_CHARS, _MAX_PIECES_CHARS = 2**10, 2**23  # 8 and 4 times the largest known


def config_from_gguf(gguf: GgufFile) -> Config:
    """The configuration of the model in `gguf`.

    Beyond the keys of `config.json`: `rope_interleaved`, true if query and key rows are stored for
    interleaved rotary pairs (GGUF's order for Llama); `norm_weight_offset`, the value to add to a
    norm's stored weight (Gemma's GGUF already contains the + 1 that its checkpoints omit).

    Raises:
        WeightsError: the architecture is not known or a key is missing or of the wrong type.
    """
    architecture = gguf.metadata.get("general.architecture")
    if not isinstance(architecture, str) or architecture not in GGUF_ARCHITECTURES:
        known = ", ".join(sorted(GGUF_ARCHITECTURES))
        raise WeightsError(f"{gguf.path}: GGUF architecture {shown(architecture)}; known: {known}")
    reader = _Reader(gguf, architecture)
    config = _base(reader)
    config |= _tokens(reader)
    config |= _FAMILIES[architecture](reader, config)
    return config


class _Reader:
    """Typed access to `<architecture>.<key>`."""

    def __init__(self, gguf: GgufFile, architecture: str) -> None:
        self.gguf = gguf
        self.architecture = architecture

    def _get(self, key: str, kind: type | tuple[type, ...]) -> Any:
        value = self.gguf.metadata.get(f"{self.architecture}.{key}")
        if value is not None and (not isinstance(value, kind) or isinstance(value, bool)):
            raise self._wrong(key, value)
        return value

    def _wrong(self, key: str, value: object) -> WeightsError:
        return WeightsError(f"{self.gguf.path}: {self.architecture}.{key} is {shown(value)}")

    def find_int(self, key: str) -> int | None:
        """A size or a count, greater than 0."""
        value = self._get(key, int)
        if value is not None and value < 1:
            raise self._wrong(key, value)
        return value

    def integer(self, key: str) -> int:
        value = self.find_int(key)
        if value is None:
            raise WeightsError(f"{self.gguf.path}: the key {self.architecture}.{key} is missing")
        return value

    def number(self, key: str, default: float) -> float:
        value = self._get(key, (int, float))
        return default if value is None else float(value)

    def find_str(self, key: str) -> str | None:
        return self._get(key, str)


def _base(reader: _Reader) -> Config:
    hidden, heads = reader.integer("embedding_length"), reader.integer("attention.head_count")
    embedding = reader.gguf.tensors.get("token_embd.weight")
    if embedding is None:
        raise WeightsError(f"{reader.gguf.path}: the tensor token_embd.weight is missing")
    head_dim = reader.find_int("attention.key_length")
    kv_heads = reader.find_int("attention.head_count_kv")
    return {
        "architectures": [GGUF_ARCHITECTURES[reader.architecture][0]],
        "model_type": reader.architecture,
        "vocab_size": embedding.shape[0],
        "hidden_size": hidden,
        "intermediate_size": reader.integer("feed_forward_length"),
        "num_hidden_layers": reader.integer("block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": heads if kv_heads is None else kv_heads,
        "head_dim": hidden // heads if head_dim is None else head_dim,
        "max_position_embeddings": reader.integer("context_length"),
        "rms_norm_eps": reader.number("attention.layer_norm_rms_epsilon", 1e-6),
        "tie_word_embeddings": "output.weight" not in reader.gguf.tensors,
        "rope_parameters": _rope(reader),
        "rope_interleaved": False,
    }


def _rope(reader: _Reader) -> Config:
    rope: Config = {
        "rope_type": "default",
        "rope_theta": reader.number("rope.freq_base", 10000.0),
    }
    scaling = reader.find_str("rope.scaling.type")
    if scaling not in (None, "none"):
        original = reader.find_int("rope.scaling.original_context_length")
        rope |= {"rope_type": scaling, "factor": reader.number("rope.scaling.factor", 1.0)}
        if original is not None:
            rope["original_max_position_embeddings"] = original
    return rope


def _check_tokenizer(gguf: GgufFile) -> None:
    """Checks the types of the tokenizer's metadata, and bounds its pieces: merges follow from every
    way to split a piece in two."""
    for key, value in gguf.metadata.items():
        name = key.removeprefix(_TOKENIZER)
        kind, items = _TOKENIZER_TYPES.get(name, (None, None))
        if kind is None or name == key:
            continue
        # All items of a GGUF array have one type.
        if type(value) is not kind or (items and value and type(value[0]) is not items):
            raise WeightsError(f"{gguf.path}: {key} is of the wrong type: {shown(value)}")
    pieces = gguf.metadata.get(f"{_TOKENIZER}tokens") or [""]
    if max(map(len, pieces)) > _MAX_PIECE_CHARS or sum(map(len, pieces)) > _MAX_PIECES_CHARS:
        raise WeightsError(
            f"{gguf.path}: {_TOKENIZER}tokens has tokens of more than {_MAX_PIECE_CHARS}"
            f" characters, or more than {_MAX_PIECES_CHARS} together"
        )


def _tokens(reader: _Reader) -> Config:
    """Token ids; a chat model may end a turn with another token than a text."""
    metadata = reader.gguf.metadata
    prefix = _TOKENIZER
    _check_tokenizer(reader.gguf)
    ends = [metadata.get(f"{prefix}{kind}_token_id") for kind in ("eos", "eot", "eom")]
    ends += _ends_of_text(metadata)
    config: Config = {"eos_token_id": sorted({end for end in ends if type(end) is int})}
    for name, key in (("bos_token_id", "bos"), ("pad_token_id", "padding")):
        value = metadata.get(f"{prefix}{key}_token_id")
        if type(value) is int:
            config[name] = value
    return config


def _ends_of_text(metadata: Mapping[str, Any]) -> list[int]:
    """The file names the end of a turn as a chat model's `eos`, which may also end the text."""
    pieces: list[str] = metadata.get(f"{_TOKENIZER}tokens") or []
    kinds: list[int] = metadata.get(f"{_TOKENIZER}token_type") or []
    found = [pieces.index(piece) for piece in _ENDS_OF_TEXT if piece in pieces]
    return [index for index in found if kinds[index : index + 1] == [_CONTROL]]


def _llama(reader: _Reader, config: Config) -> Config:
    rotary = reader.find_int("rope.dimension_count")
    rope = dict(config["rope_parameters"])
    head_dim = config["head_dim"]
    if rotary is not None and rotary != head_dim:
        if not 1 <= rotary < head_dim:
            raise WeightsError(
                f"{reader.gguf.path}: llama.rope.dimension_count is {rotary}, heads have {head_dim}"
            )
        rope["partial_rotary_factor"] = rotary / head_dim
    factors = reader.gguf.tensors.get("rope_freqs.weight")
    if factors is not None:  # Llama 3.1's scaling, computed by the program that wrote the file
        if len(factors.shape) != 1 or 2 * factors.shape[0] > head_dim:
            raise WeightsError(
                f"{reader.gguf.path}: rope_freqs.weight is {list(factors.shape)}, heads have"
                f" {head_dim}"
            )
        rope |= {"rope_type": "factors", "factors": read_f32(factors).tolist()}
    llama: Config = {"hidden_act": "silu", "rope_interleaved": True, "rope_parameters": rope}
    if reader.number("expert_count", 0) > 0:  # Mixtral has no name of its own
        llama |= {"architectures": [GGUF_ARCHITECTURES["llama"][1]]} | _experts(reader)
    return llama


def _experts(reader: _Reader) -> Config:
    return {
        "num_local_experts": reader.integer("expert_count"),
        "num_experts_per_tok": reader.integer("expert_used_count"),
    }


def _qwen3_moe(reader: _Reader, config: Config) -> Config:
    del config
    # There is no key for layers without experts, nor for the normalization of the weights of a
    # token's experts, which all models of the family do.
    dense = [
        int(match[1])
        for name in reader.gguf.tensors
        if (match := re.fullmatch(r"blk\.(\d{1,9})\.ffn_gate\.weight", name))
    ]
    return _experts(reader) | {
        "hidden_act": "silu",
        "moe_intermediate_size": reader.integer("expert_feed_forward_length"),
        "mlp_only_layers": dense,
        "norm_topk_prob": True,
    }


def _qwen(reader: _Reader, config: Config) -> Config:
    del reader, config
    return {"hidden_act": "silu"}


def _gemma3(reader: _Reader, config: Config) -> Config:
    # The 27B model is the only one of the family whose query scale is not its head size; GGUF has
    # no key for it (llama.cpp also identifies it by its 62 layers).
    scalar = config["head_dim"]
    if config["num_hidden_layers"] == 62:
        scalar = config["hidden_size"] // config["num_attention_heads"]
    sliding = {"rope_type": "default", "rope_theta": reader.number("rope.freq_base_swa", 10000.0)}
    return {
        "hidden_activation": "gelu_pytorch_tanh",
        "sliding_window": reader.integer("attention.sliding_window"),
        "sliding_window_pattern": reader.find_int("attention.sliding_window_pattern") or 6,
        "query_pre_attn_scalar": scalar,
        "norm_weight_offset": 0.0,
        "rope_parameters": {
            "full_attention": config["rope_parameters"],
            "sliding_attention": sliding,
        },
    }


_FAMILIES: dict[str, Callable[[_Reader, Config], Config]] = {
    "gemma3": _gemma3,
    "llama": _llama,
    "qwen2": _qwen,
    "qwen3": _qwen,
    "qwen3moe": _qwen3_moe,
}
