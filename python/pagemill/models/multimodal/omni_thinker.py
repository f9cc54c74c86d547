"""The thinker of an Omni checkpoint, whose talker and vocoder are left out: its configuration is
`thinker_config` of the whole's, or stands alone, as its weights are behind `thinker.` or alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pagemill.layers.base import Weights
from pagemill.models.base import Config
from pagemill.models.config_keys import inner_config, rope_parameters
from pagemill.models.decoder import Decoder
from pagemill.models.multimodal.decoder_part import text_weights

_PREFIX = "thinker."
# Of positions in time, row and column, which are the same for a token of text or audio.
_MROPE_KEYS = frozenset({"interleaved", "mrope_interleaved", "mrope_section"})
_EMBEDDINGS = ("model.embed_tokens.weight", "model.language_model.embed_tokens.weight")
UNUSED: Mapping[str, str] = {
    r"(talker|token2wav|code2wav)\..*": "it does not speak",
    r"(thinker\.)?(model\.)?audio_tower\.audio_bos_eos_token\.weight": "text has such tokens",
    r"(thinker\.)?lm_head\.weight": "the embedding is used if they are tied",
}
"""`Model.ignored` of every thinker."""


def thinker_config(config: Config) -> Config:
    """That of the thinker in the configuration of a checkpoint."""
    whole = config.get("thinker_config") is not None
    return inner_config(config, "thinker_config") if whole else config


def text_of_audio(text: Config) -> dict[str, Any]:
    """The configuration `text` of the language model of a thinker that takes text and audio
    alone."""
    stated = rope_parameters(text)
    rope = {key: value for key, value in stated.items() if key not in _MROPE_KEYS}
    if rope.get("rope_type") == "mrope":
        rope["rope_type"] = "default"
    return {**text, "rope_parameters": rope}


def thinker_weights(weights: Weights) -> Weights:
    """Those of the thinker among the weights of a checkpoint."""
    whole = weights.within(_PREFIX)
    return whole if any(map(whole.has, _EMBEDDINGS)) else weights


def thinker_text_weights(weights: Weights, text: Decoder) -> Weights:
    """Those of the thinker's language model `text`, under the names that it uses."""
    whole = thinker_weights(weights)
    part = text_weights(whole, text)
    return part if part.has(f"{text.names.embedding}.weight") else whole
