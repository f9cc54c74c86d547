"""Aria: SigLIP's vision tower for images of any size, a projector whose learned queries attend to
the patches, and a decoder with experts.

Weights: `vision_tower.` or `vision_tower.vision_model.` (idefics_vision.py),
`multi_modal_projector.{query, layer_norm, feed_forward.{linear_in,linear_out}}`, of its
`cross_attn` `layer_norm`, `layer_norm_kv`, `{q,k,v}_proj`, `multihead_attn.{in_proj_weight,
in_proj_bias, out_proj}` and `linear`, and `language_model.` (aria_text.py). All may be behind
`model.`, with `lm_head` beside it.

How many queries there are follows from the longer side of an image, which has one of a few sizes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Self, cast

from pagemill import ops
from pagemill.inputs.prepared_media import PreparedMedia
from pagemill.inputs.rendered_prompt import MediaFeatures
from pagemill.layers import norm
from pagemill.layers.base import Weights
from pagemill.layers.linear import linear
from pagemill.layers.media_rows import side_by_side
from pagemill.models.base import (
    Config,
    EncoderInputs,
    ModelConfigError,
    ModelTraits,
)
from pagemill.models.config_keys import Defaults, inner_config, token_id
from pagemill.models.multimodal.decoder_part import (
    WithDecoder,
    decoder_part,
    ignored_in_part,
    parts_weights,
    tower_weights,
)
from pagemill.models.vision.idefics_vision import AriaVisionTower
from pagemill.models.vision.learned_queries import LearnedQueries
from pagemill.models.vision.margin import MarginColumns, attend_beside_margin
from pagemill.models.vision.vision_layers import feature_depths
from pagemill.ops import ActivationKind
from pagemill.ops.shard import Stripe
from pagemill.ops.trace import Tensor
from pagemill.weights.json_file import shown

_EPS = 1e-5
_NUMBER = re.compile("[1-9][0-9]{0,4}")
_MOST = 2**14  # patches and queries of an image
# Those of the configuration's class: published checkpoints may leave them out.
_DEFAULTS = {
    "image_token_index": 9,
    "projector_patch_to_query_dict": {"1225": 128, "4900": 256},
}


class AriaModel(WithDecoder):
    """One Aria model."""

    def __init__(self, config: Config) -> None:
        key = "image_token_id" if config.get("image_token_id") is not None else "image_token_index"
        config = Defaults(config, _DEFAULTS)
        self._text = decoder_part(config, ("aria_text",))
        self._tower = AriaVisionTower(inner_config(config, "vision_config"))
        depths = feature_depths(config, (-1,), self._tower.layers)
        if len(depths) != 1:
            raise ModelConfigError("vision_feature_layer must be one layer in this architecture")
        (self._depth,) = depths
        self.ignored = {
            r"(model\.)?vision_tower\.(vision_model\.)?post_layernorm\..*": (
                "the vectors of all patches are used, not normalized"
            ),
            **ignored_in_part(self._text),
        }
        self._counts = _counts(config)
        apart = min(-(-patches // count) for patches, count in self._counts.items())
        self._queries = LearnedQueries(max(self._counts.values()), apart)
        self._placeholder = token_id(config, key, self._text.traits.vocab_size)

    @classmethod
    def from_config(cls, config: Config) -> Self:
        return cls(config)

    @property
    def traits(self) -> ModelTraits:
        width = self._text.traits.hidden_size
        media = replace(
            self._tower.media_traits(width=width, placeholders={"image": self._placeholder}),
            rows=self._queries.group,
            channels=self._tower.channels + self._queries.channels,
            placed=True,
            most_tokens=max(self._queries.groups(*each) for each in self._counts.items()),
        )
        return replace(self._text.traits, media=media)

    def features(self, image: PreparedMedia) -> MediaFeatures:
        found = self._tower.features(image)
        assert image.grid is not None
        longer = max(image.grid)
        if longer**2 not in self._counts:
            known = ", ".join(str(math.isqrt(patches)) for patches in self._counts)
            raise ValueError(
                f"an image has {longer} patches along its longer side; it must be one of {known}"
            )
        return self._queries.features(found.rows, self._counts[longer**2])

    def embeddings(self, weights: Weights, inputs: EncoderInputs) -> Tensor:
        parts = parts_weights(weights, "multi_modal_projector.query")
        tower, named = self._tower, tower_weights(parts, "vision_tower")
        rows, own = ops.split(inputs.media.rows, tower.channels)
        patches, places = ops.split(rows, tower.channels - tower.place_channels)
        columns, _ = self._queries.margins(own)
        x = tower.placed(named, patches, places)
        x = tower.encoder.hidden(named, x, (self._depth,), margin=columns)
        tower.encoder.claim_rest(named, self._depth)
        projector, tokens = parts.within("multi_modal_projector."), inputs.media.tokens
        q = self._queries.embed(projector, "query", own, tokens, tower.hidden_size)
        y = self._attend(projector.within("cross_attn."), q, x, tokens, columns)
        y = norm.layer_norm(projector, "layer_norm", y, _EPS)
        width = self._text.traits.hidden_size
        y = linear(projector, "feed_forward.linear_in", y, (width,))
        y = ops.activation(y, ActivationKind.GELU_TANH)
        return linear(projector, "feed_forward.linear_out", y, (width,))

    def _attend(
        self, weights: Weights, q: Tensor, x: Tensor, tokens: Tensor, columns: MarginColumns
    ) -> Tensor:
        """Queries q [media_rows, hidden] and patches x [T, hidden] -> [media_rows, hidden]."""
        hidden, inner = self._tower.hidden_size, "multihead_attn"
        q = norm.layer_norm(weights, "layer_norm", q, _EPS)
        x = norm.layer_norm(weights, "layer_norm_kv", x, _EPS)

        name, size = f"{inner}.in_proj", 3 * hidden
        # A parameter without a module of its own, read whole: little beside the tower.
        matrix = weights.column_stripe(f"{name}_weight", (size, hidden), Stripe(0, 1))
        bias = weights.vector(f"{name}_bias", size)

        def project(index: int, y: Tensor) -> Tensor:
            y = linear(weights, f"{'qkv'[index]}_proj", y, (hidden,))
            return side_by_side(ops.linear(y, matrix, bias), hidden)[index]

        q, k, v = (project(index, y) for index, y in enumerate((q, x, x)))
        q = ops.scatter_rows(k, q, tokens)
        y = attend_beside_margin(q, k, v, self._tower.encoder.shape, None, columns)
        y = ops.select_rows(y, tokens)
        y = linear(weights, f"{inner}.out_proj", y, (hidden,), bias=True)
        return linear(weights, "linear", y, (hidden,), bias=True)


def _counts(config: Config) -> dict[int, int]:
    """How many queries an image has of a square with so many patches.

    Raises:
        ModelConfigError: the configuration says otherwise.
    """
    key = "projector_patch_to_query_dict"
    stated: Config = cast("Config", config[key]) if isinstance(config[key], Mapping) else {}
    counts: dict[int, int] = {
        int(patches): count for patches, count in stated.items() if _NUMBER.fullmatch(str(patches))
    }
    squares = all(math.isqrt(patches) ** 2 == patches <= _MOST for patches in counts)
    numbers = all(type(count) is int and 0 < count <= _MOST for count in counts.values())
    if not counts or len(counts) < len(stated) or not squares or not numbers:
        raise ModelConfigError(
            f"{key} is {shown(config[key])}; it must have numbers of queries by numbers of patches"
            f" of squares, each at most {_MOST}"
        )
    return counts
