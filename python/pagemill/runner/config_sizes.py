"""Whether a checkpoint's configuration and its files tell of the same sizes.

check_sizes(source)
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, cast

from pagemill.weights.errors import WeightsError
from pagemill.weights.json_file import shown
from pagemill.weights.source import ModelSource

# Sizes of a configuration that are at most the largest dimension of the model's tensors.
_SIZES = (
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "dim",
    "hidden_dim",
    "n_heads",
    "d_model",
    "encoder_ffn_dim",
    "decoder_ffn_dim",
    "num_mel_bins",
    "max_source_positions",
    "max_target_positions",
)
_LAYERS = (
    "num_hidden_layers",
    "n_layers",
    "n_layer",
    "num_layers",
    "num_decoder_layers",
    "encoder_layers",
    "decoder_layers",
)


def check_sizes(source: ModelSource, *, vocabulary: bool = True) -> None:
    """Compares the sizes in the configuration with the files before anything is allocated from
    them, that of the `vocabulary` too, unless its tensors may be elsewhere. Each weight's exact
    shape is checked when it is traced.

    Raises:
        WeightsError: one is larger than every tensor.
    """
    stored = [tensor for tensor in source.tensors if math.prod(tensor.shape)]
    largest = max((max(tensor.shape, default=0) for tensor in stored), default=0)
    keys = _SIZES if vocabulary else _SIZES[1:]
    limits = [(key, largest, "the largest dimension of a tensor") for key in keys]
    limits += [(key, len(stored), "the number of tensors") for key in _LAYERS]
    for config in (source.config, *_parts(source.config)):
        for key, limit, what in limits:
            value = config.get(key)
            if type(value) is int and value > limit:
                raise WeightsError(
                    f"{source.path}: the configuration's {key} is {shown(value)}, but {what} is"
                    f" {limit}"
                )
    vocab = source.config.get("vocab_size") if vocabulary else None
    for token in source.eos_token_ids:
        if type(vocab) is int and not 0 <= token < vocab:
            raise WeightsError(
                f"{source.path}: eos_token_id {shown(token)} is not in the vocabulary of {vocab}"
            )


def _parts(config: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Configurations of models that the model is made of."""
    for key in ("thinker_config", "vlm_config"):  # of a whole Omni model, and of one for retrieval
        whole = config.get(key)
        if isinstance(whole, Mapping):
            config = cast("Mapping[str, Any]", whole)
    values = (config.get(key) for key in ("text_config", "llm_config", "vision_config"))
    parts = [cast("Mapping[str, Any]", part) for part in values if isinstance(part, Mapping)]
    audio = config.get("audio_config")
    if isinstance(audio, Mapping):  # an encoder has no vocabulary, and some of these state one
        parts.append({**cast("Mapping[str, Any]", audio), "vocab_size": None})
    return parts
