"""Converts GGUF metadata to the form of a Hugging Face `config.json`, so that a model family reads
one kind of configuration for all weights."""

from __future__ import annotations

from typing import Any, cast

from pagemill.weights.errors import WeightsError
from pagemill.weights.gguf import GgufFile
from pagemill.weights.gguf_classifiers import classifier
from pagemill.weights.gguf_families import GGUF_FAMILIES
from pagemill.weights.gguf_family import GgufFamily
from pagemill.weights.gguf_reader import GgufReader
from pagemill.weights.gguf_rotary import read_rope
from pagemill.weights.gguf_tokens import read_tokens
from pagemill.weights.json_file import shown

Config = dict[str, Any]


def config_from_gguf(gguf: GgufFile) -> Config:
    """The configuration of the model in `gguf`.

    Beyond the keys of `config.json` it has some that say what converters do to weights:
    `rope_interleaved`, true if query and key rows are stored for interleaved rotary pairs (GGUF's
    order for Llama); `norm_weight_offset`, the value to add to a norm's stored weight (Gemma's GGUF
    already contains the + 1 that its checkpoints omit); `qkv_by_head`, false if the rows of q, k
    and v of a fused matrix are one after the other; `weights_transposed`, false if matrices that
    checkpoints store as [in, out] are [out, in]; `gate_and_up_fused`, false if the matrices of gate
    and up are two; `linear_heads_in_turn`, true if the heads of a group of linear attention are
    apart by the number of groups.

    Raises:
        WeightsError: the architecture is not known or a key is missing or of the wrong type.
    """
    architecture = gguf.metadata.get("general.architecture")
    if not isinstance(architecture, str) or architecture not in GGUF_FAMILIES:
        raise WeightsError(
            f"{gguf.path}: GGUF architecture {shown(architecture)} is not one of the"
            f" {len(GGUF_FAMILIES)} that `pagemill models` lists"
        )
    family = GGUF_FAMILIES[architecture]
    reader = GgufReader(gguf, architecture)
    config = _base(reader, family)
    for key, stored in family.keys.items():
        value = reader.find(stored)
        if value is not None:
            config[key] = value
    for key, tensor in family.flags.items():
        config[key] = any(name.endswith(f".{tensor}") for name in gguf.tensors)
    config |= read_tokens(gguf) | dict(family.fixed)
    if family.more is not None:
        config |= family.more(reader, config)
    return config | classifier(reader)


def _base(reader: GgufReader, family: GgufFamily) -> Config:
    embedding = reader.tensor("token_embd.weight")
    if embedding is None:
        raise reader.error("the tensor token_embd.weight is missing")
    config: Config = {
        "architectures": [family.architectures[0]],
        "model_type": reader.architecture,
        "vocab_size": embedding.shape[0],
        "hidden_size": reader.integer("embedding_length"),
        "num_hidden_layers": reader.layers(),
        "max_position_embeddings": reader.integer("context_length"),
        "rms_norm_eps": reader.number("attention.layer_norm_rms_epsilon", 1e-6),
        "tie_word_embeddings": reader.tensor("output.weight") is None,
    }
    return config | _attention(reader, config) | _windows(reader) if family.attention else config


def _attention(reader: GgufReader, config: Config) -> Config:
    heads = reader.integer("attention.head_count")
    head_dim = reader.find_int("attention.key_length") or config["hidden_size"] // heads
    if head_dim < 1:
        raise reader.error(f"{heads} heads cannot share an embedding of {config['hidden_size']}")
    # Models with experts in all layers may state no other size.
    of_experts = reader.find_int("expert_feed_forward_length")
    sized = of_experts is None or reader.find("feed_forward_length") is not None
    return {
        "intermediate_size": reader.integer("feed_forward_length") if sized else of_experts,
        "num_attention_heads": heads,
        "num_key_value_heads": reader.find_int("attention.head_count_kv") or heads,
        "head_dim": head_dim,
        "rope_parameters": read_rope(reader, head_dim),
        "rope_interleaved": False,
    }


def _windows(reader: GgufReader) -> Config:
    """The window, which files have as 0 for none, and the layers that have it."""
    windows: Config = {}
    if reader.find("attention.sliding_window"):
        windows["sliding_window"] = reader.integer("attention.sliding_window")
    pattern = reader.find("attention.sliding_window_pattern")
    if isinstance(pattern, list):
        slides = cast("list[Any]", pattern)
        windows["layer_types"] = [
            "sliding_attention" if slide else "full_attention" for slide in slides
        ]
    elif pattern is not None:
        windows["sliding_window_pattern"] = reader.integer("attention.sliding_window_pattern")
    return windows
