"""The files of EAGLE heads, with the names and keys that the heads read.

Published heads have names with or without `model.` in front, and `midlayer` for the first layer;
those of the speculators library have the layer's configuration in an object of its own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

from pagemill.layers.decoder import AttentionParts, QkNorm
from pagemill.models.base import ModelConfigError
from pagemill.models.config_keys import FULL, SLIDING, as_list, positive_int
from pagemill.models.decoder import Decoder, DecoderNames
from pagemill.weights.errors import WeightsError
from pagemill.weights.json_file import shown
from pagemill.weights.location import TensorLocation
from pagemill.weights.source import ModelSource

NAMES = DecoderNames("embed_tokens", "layers", "norm", "lm_head")
FIRST_ATTENTION = "layers.0.self_attn"
OF_EAGLE3 = "layers.0.hidden_norm.weight"
"""A tensor that heads of EAGLE-3 have, and those of EAGLE do not."""

MASK_STATE = "mask_hidden"
"""The matrix of one row that heads have which draft in parallel (P-EAGLE)."""

_SPECULATORS = "speculators_model_type"
_LAYER = "transformer_layer_config"


def as_heads_read(source: ModelSource) -> ModelSource:
    """`source` with the names of `NAMES`, and with one configuration.

    Raises:
        ModelConfigError: it is a head of another kind.
        WeightsError: two tensors have one name.
    """
    changes: dict[str, Any] = {}
    kind = source.config.get(_SPECULATORS)
    if kind is not None:
        layer = source.config.get(_LAYER)
        if kind != "eagle3" or not isinstance(layer, Mapping):
            raise ModelConfigError(
                f"{source.path}: {_SPECULATORS} is {shown(kind)}; supported is eagle3, with an"
                f" object {_LAYER}"
            )
        changes = {"norm_before_residual": True, **cast("Mapping[str, Any]", layer)}
        changes |= {key: value for key, value in source.config.items() if key != _LAYER}
    tensors: dict[str, TensorLocation] = {}
    for tensor in source.tensors:
        name = tensor.name.removeprefix("model.")
        if name.startswith("midlayer."):
            name = "layers.0." + name.removeprefix("midlayer.")
        shape = tensor.shape
        if name == MASK_STATE:  # which some files have as [1, 1, width]
            name, shape = f"{MASK_STATE}.weight", (1, math.prod(shape))
        if name in tensors:
            raise WeightsError(f"{source.path}: {tensor.name} and another tensor are both {name}")
        tensors[name] = replace(tensor, name=name, shape=shape)
    return source.with_tensors(tensors, changes)


def read_layers(layers: Decoder, source: ModelSource) -> None:
    """Makes Llama's `layers` those of the head `source`: with the biases of its attention and the
    norms of each head of q and k (Qwen3) that its tensors show, and with windows in layers that the
    configuration lists as sliding.

    Raises:
        ModelConfigError: the window is not a number of tokens.
    """
    config, sizes = source.config, layers.sizes
    bias, output = (source.has(f"{FIRST_ATTENTION}.{name}.bias") for name in ("q_proj", "o_proj"))
    has_norms = source.has(f"{FIRST_ATTENTION}.q_norm.weight")
    layers.attention_parts = AttentionParts(
        bias=bias, output_bias=output, qk_norm=QkNorm(sizes.norm_eps) if has_norms else None
    )
    # The list may be that of the model that the configuration was copied from.
    types = (as_list(config.get("layer_types")) or [])[: sizes.layers]
    if SLIDING in types:
        window = positive_int(config, "sliding_window")
        types += [FULL] * (sizes.layers - len(types))
        layers.windows = [window if kind == SLIDING else 0 for kind in types]
