"""The decoder of a model with media, which `text_config` describes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pagemill.layers.base import Weights
from pagemill.models.aria_text import AriaTextModel
from pagemill.models.base import Config, ModelConfigError, StepInputs
from pagemill.models.cohere import CohereModel
from pagemill.models.cohere2 import Cohere2Model
from pagemill.models.config_keys import flag, inner_config
from pagemill.models.decoder import Decoder
from pagemill.models.deepseek import DeepseekModel
from pagemill.models.deepseek_v3 import DeepseekV3Model
from pagemill.models.gemma import GemmaModel
from pagemill.models.gemma2 import Gemma2Model
from pagemill.models.granite import GraniteModel
from pagemill.models.hyperclovax import HyperClovaXModel
from pagemill.models.internlm2 import InternLm2Model
from pagemill.models.lfm2 import Lfm2Model
from pagemill.models.lfm3 import Lfm3Model
from pagemill.models.llama import LlamaModel
from pagemill.models.llama4 import Llama4Model
from pagemill.models.ministral3 import Ministral3Model
from pagemill.models.mistral import MistralModel
from pagemill.models.mistral4 import Mistral4Model
from pagemill.models.muse_glimmer import MuseGlimmerModel
from pagemill.models.nemotron_h import NemotronHModel
from pagemill.models.qwen2 import Qwen2Model
from pagemill.models.qwen3 import Qwen3Model
from pagemill.models.qwen3_moe import Qwen3MoeModel
from pagemill.ops.trace import Tensor
from pagemill.weights.json_file import shown


@dataclass(frozen=True, slots=True)
class _Family:
    """The defaults are those of the configuration's class: published checkpoints leave them
    out."""

    model: type[Decoder]
    defaults: Mapping[str, Any] = field(default_factory=dict[str, Any])


_SIZES_OF_7B = {
    "vocab_size": 32000,
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
}
_SIZES_OF_COMMAND_R = {
    "vocab_size": 256000,
    "hidden_size": 8192,
    "intermediate_size": 22528,
    "num_hidden_layers": 40,
    "num_attention_heads": 64,
    "max_position_embeddings": 8192,
}
_SIZES_OF_GEMMA = {"vocab_size": 256000, "head_dim": 256, "max_position_embeddings": 8192}
_FAMILIES: Mapping[str, _Family] = {
    "aria_text": _Family(
        AriaTextModel,
        {**_SIZES_OF_7B, "intermediate_size": 4096, "max_position_embeddings": 2048},
    ),
    "cohere": _Family(CohereModel, _SIZES_OF_COMMAND_R),
    "cohere2": _Family(Cohere2Model, {**_SIZES_OF_COMMAND_R, "sliding_window": 4096}),
    "deepseek_ocr2_text": _Family(DeepseekModel),
    "deepseek_v3": _Family(DeepseekV3Model),
    "gemma": _Family(
        GemmaModel,
        {
            **_SIZES_OF_GEMMA,
            "hidden_size": 3072,
            "intermediate_size": 24576,
            "num_hidden_layers": 28,
            "num_attention_heads": 16,
            "num_key_value_heads": 16,
        },
    ),
    "gemma2": _Family(
        Gemma2Model,
        {
            **_SIZES_OF_GEMMA,
            "hidden_size": 2304,
            "intermediate_size": 9216,
            "num_hidden_layers": 26,
            "num_attention_heads": 8,
            "num_key_value_heads": 4,
            "sliding_window": 4096,
            "attn_logit_softcapping": 50.0,
            "final_logit_softcapping": 30.0,
        },
    ),
    "granite": _Family(
        GraniteModel,
        {**_SIZES_OF_7B, "intermediate_size": 11008, "max_position_embeddings": 2048},
    ),
    "granite4_vision_text": _Family(
        GraniteModel,
        {**_SIZES_OF_7B, "intermediate_size": 11008, "max_position_embeddings": 2048},
    ),
    "granite_docling_text": _Family(
        GraniteModel,
        {
            "vocab_size": 133800,
            "hidden_size": 1024,
            "intermediate_size": 2048,
            "num_hidden_layers": 28,
            "num_attention_heads": 16,
            "num_key_value_heads": 4,
            "max_position_embeddings": 32768,
            "rms_norm_eps": 1e-5,
            "embedding_multiplier": 12.0,
            "logits_scaling": 4.0,
            "residual_multiplier": 0.263,
            "attention_multiplier": 0.015625,
        },
    ),
    "hyperclovax": _Family(HyperClovaXModel),
    "internlm2": _Family(InternLm2Model),
    "kimi_k2": _Family(DeepseekV3Model),
    "lfm2": _Family(
        Lfm2Model,
        {
            "vocab_size": 65536,
            "hidden_size": 2560,
            "intermediate_size": 12288,
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "max_position_embeddings": 128000,
        },
    ),
    "lfm3": _Family(
        Lfm3Model,
        {
            "vocab_size": 128000,
            "hidden_size": 2048,
            "intermediate_size": 7680,
            "num_hidden_layers": 24,
            "num_attention_heads": 16,
            "num_key_value_heads": 4,
            "head_dim": 128,
            "max_position_embeddings": 128000,
        },
    ),
    "llama": _Family(
        LlamaModel,
        {**_SIZES_OF_7B, "intermediate_size": 11008, "max_position_embeddings": 2048},
    ),
    "llama4_text": _Family(Llama4Model),
    "mistral": _Family(
        MistralModel,
        {
            **_SIZES_OF_7B,
            "intermediate_size": 14336,
            "num_key_value_heads": 8,
            "max_position_embeddings": 131072,
        },
    ),
    "ministral3": _Family(Ministral3Model),
    "mistral4": _Family(Mistral4Model),
    "muse_glimmer_text": _Family(MuseGlimmerModel),
    "nemotron_h": _Family(NemotronHModel),
    "qwen2": _Family(Qwen2Model),
    "qwen3": _Family(Qwen3Model),
    "qwen3_moe": _Family(Qwen3MoeModel),
}


def decoder_part(config: Config, known: Sequence[str]) -> Decoder:
    """The decoder, one of the `known` families; its head is tied if the whole model says so.

    Raises:
        ModelConfigError: there is no `text_config`, or its family is another one.
    """
    text = inner_config(config, "text_config")
    kind = text.get("model_type", "llama")
    if kind not in known:
        raise ModelConfigError(
            f"a language model of type {shown(kind)} in this architecture is not supported; known:"
            f" {', '.join(known)}"
        )
    family = _FAMILIES[kind]
    tied = flag(config, "tie_word_embeddings", flag(text, "tie_word_embeddings", False))
    return family.model({**family.defaults, **text, "tie_word_embeddings": tied})


def head_is_tied(config: Config, text: Config, *, default: bool) -> bool:
    """True if the configuration of a whole model, or of its text, says that the head is tied: some
    checkpoints say it in one of them, and have the default of a class in the other."""
    return any(flag(part, "tie_word_embeddings", default) for part in (config, text))


def text_weights(weights: Weights, text: Decoder) -> Weights:
    """The weights of a checkpoint under the names that its decoder `text` uses: they are under
    `language_model.`, or `language_model.` is behind the first `model.` of their names."""
    whole = weights.within("language_model.")
    if whole.has(f"{text.names.embedding}.weight"):
        return whole
    return weights.within("language_model.", behind="model.")


class WithDecoder:
    """What a model with encoders leaves to its decoder, `_text`: a `Model` (base.py) without the
    rest of an `EncoderModel`."""

    ignored: Mapping[str, str] = {}
    _text: Decoder

    @property
    def text(self) -> Decoder:
        return self._text

    def hidden(self, weights: Weights, inputs: StepInputs) -> Tensor:
        return self._text.hidden(self.named(weights), inputs)

    def logits(self, weights: Weights, rows: Tensor) -> Tensor:
        return self._text.logits(self.named(weights), rows)

    def token_logits(
        self, weights: Weights, rows: Tensor, sums: Sequence[Mapping[int, float]]
    ) -> Tensor:
        return self._text.token_logits(self.named(weights), rows, sums)

    def named(self, weights: Weights) -> Weights:
        """The checkpoint's weights under the names that the decoder uses."""
        return text_weights(weights, self._text)


def parts_weights(weights: Weights, name: str) -> Weights:
    """The weights of a checkpoint beside its decoder, one of which is `name`: newer checkpoints
    have `model.` in front of them."""
    return weights.within("model.") if weights.has(f"model.{name}") else weights


def tower_weights(weights: Weights, name: str) -> Weights:
    """The weights of the vision tower `name`, of CLIP or SigLIP: some checkpoints have
    `vision_model.` behind its name."""
    tower = weights.within(f"{name}.")
    if tower.has("embeddings.patch_embedding.weight"):
        return tower
    return tower.within("vision_model.")


def ignored_in_part(text: Decoder) -> dict[str, str]:
    """`Model.ignored` of the decoder, under the names of the whole checkpoint."""
    ignored: dict[str, str] = {}
    for name, why in text.ignored.items():
        inner = name.replace(r"model\.", r"model\.language_model\.", 1)
        ignored |= {rf"language_model\.(?:{name})": why, inner: why}
    return ignored
