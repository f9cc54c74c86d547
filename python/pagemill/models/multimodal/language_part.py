"""The language model of a checkpoint that also has encoders, which are not used: text is served,
requests with images or audio are refused.

Weights: those of the family in `text_config`, under `language_model.`, or with `language_model.`
behind the first `model.` of their names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self, cast

from pagemill.layers.base import Weights
from pagemill.models.base import Config, ModelConfigError, ModelTraits, StepInputs
from pagemill.models.cohere_compass import CohereCompassModel
from pagemill.models.decoder import Decoder
from pagemill.models.exaone4 import Exaone4Model
from pagemill.models.gemma3 import Gemma3Model
from pagemill.models.gemma3n import Gemma3nModel
from pagemill.models.gemma4 import Gemma4Model
from pagemill.models.glm4 import Glm4Model
from pagemill.models.glm4_moe import Glm4MoeModel
from pagemill.models.llama4 import Llama4Model
from pagemill.models.ministral3 import Ministral3Model
from pagemill.models.mistral import MistralModel
from pagemill.models.mistral4 import Mistral4Model
from pagemill.models.mistral_large4 import MistralLarge4Model
from pagemill.models.multimodal.decoder_part import ignored_in_part, text_weights
from pagemill.models.muse_glimmer import MuseGlimmerModel
from pagemill.models.qwen2 import Qwen2Model
from pagemill.models.qwen3 import Qwen3Model
from pagemill.models.qwen3_moe import Qwen3MoeModel
from pagemill.models.qwen3_next import Qwen3NextModel
from pagemill.models.step3 import Step3Model
from pagemill.models.step3p5 import Step3p5Model
from pagemill.ops.trace import Tensor
from pagemill.weights.json_file import shown

_ENCODERS = (
    r"(model\.)?(vision_tower|vision_model|vision_embedder|audio_tower|multi_modal_projector"
    r"|embed_vision|embed_audio|visual|vit_downsampler2?|vit_large_projector|vision_adapter"
    r"|vision_projection|merger|visual_embeddings_table)\..*"
)


class LanguagePart:
    """A `Model` (base.py). A subclass says which families there are, by the `model_type` of
    `text_config`, and what this leaves out. `text` is the language model."""

    families: ClassVar[Mapping[str, type[Decoder]]]
    defaults: ClassVar[Mapping[str, Any]] = {}
    ignored: Mapping[str, str] = {_ENCODERS: "text alone is served"}

    def __init__(self, config: Config) -> None:
        text = config.get("text_config")
        if not isinstance(text, Mapping):
            raise ModelConfigError("the configuration needs text_config to be an object")
        kind: object = cast("Config", text).get("model_type")
        if not isinstance(kind, str) or kind not in self.families:
            raise ModelConfigError(
                f"a language model of type {shown(kind)} in this architecture is not supported;"
                f" known: {', '.join(sorted(self.families))}"
            )
        # The whole model's head is tied or not; text_config may have the default of its class.
        keys = {key: config[key] for key in ("tie_word_embeddings",) if key in config}
        self.text = self.families[kind]({**self.defaults, **cast("Config", text), **keys})
        self.ignored = {**self.ignored, **ignored_in_part(self.text)}

    @classmethod
    def from_config(cls, config: Config) -> Self:
        return cls(config)

    @property
    def traits(self) -> ModelTraits:
        return self.text.traits

    def hidden(self, weights: Weights, inputs: StepInputs) -> Tensor:
        return self.text.hidden(self.named(weights), inputs)

    def logits(self, weights: Weights, rows: Tensor) -> Tensor:
        return self.text.logits(self.named(weights), rows)

    def token_logits(
        self, weights: Weights, rows: Tensor, sums: Sequence[Mapping[int, float]]
    ) -> Tensor:
        return self.text.token_logits(self.named(weights), rows, sums)

    def named(self, weights: Weights) -> Weights:
        """The weights of the checkpoint under the names that the language model uses."""
        return text_weights(weights, self.text)


class CohereCompassLanguagePart(LanguagePart):
    """North."""

    families = {"cohere_compass_text": CohereCompassModel}


class Exaone45LanguagePart(LanguagePart):
    """EXAONE 4.5."""

    families = {"exaone4": Exaone4Model, "exaone4_5_text": Exaone4Model}
    ignored = {**LanguagePart.ignored, r"mtp\..*": "further tokens are not predicted"}


class Gemma3LanguagePart(LanguagePart):
    """Gemma 3 of 4B parameters and more; the defaults are those of its configuration's class."""

    families = {"gemma3_text": Gemma3Model}
    defaults = {
        "vocab_size": 262208,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "max_position_embeddings": 131072,
        "rope_theta": 1e6,
        "rope_local_base_freq": 1e4,
        "query_pre_attn_scalar": 256,
        "sliding_window": 4096,
    }


class Gemma3nLanguagePart(LanguagePart):
    """Gemma 3n."""

    families = {"gemma3n_text": Gemma3nModel}


class Gemma4LanguagePart(LanguagePart):
    """Gemma 4."""

    families = {"gemma4_text": Gemma4Model}


class Gemma4UnifiedLanguagePart(LanguagePart):
    """Gemma 4 without towers; the defaults are those of its configuration's class."""

    families = {"gemma4_unified_text": Gemma4Model}
    defaults = {
        "hidden_size_per_layer_input": 0,
        "sliding_window": 1024,
        "use_bidirectional_attention": "vision",
    }


class Llama4LanguagePart(LanguagePart):
    """Llama 4."""

    families = {"llama4_text": Llama4Model}


class MiniCpmV47LanguagePart(LanguagePart):
    """MiniCPM-V 4.7."""

    families = {"qwen3_5_text": Qwen3NextModel}


class Mistral3LanguagePart(LanguagePart):
    """Mistral Small 3.1 and later, Ministral 3 and Mistral 4."""

    families = {
        "ministral3": Ministral3Model,
        "mistral": MistralModel,
        "mistral4": Mistral4Model,
    }


class MistralLarge4LanguagePart(LanguagePart):
    """Mistral Large 4."""

    families = {"mistral_large4_text": MistralLarge4Model}


class MuseGlimmerLanguagePart(LanguagePart):
    """Muse Glimmer."""

    families = {"muse_glimmer_text": MuseGlimmerModel}


class Ovis2LanguagePart(LanguagePart):
    """Ovis2."""

    families = {"qwen2": Qwen2Model}


class Glm4vLanguagePart(LanguagePart):
    """GLM-4.1V, dense, and GLM-4.5V and 4.6V, with experts; the default is that of both classes."""

    families = {"glm4v_moe_text": Glm4MoeModel, "glm4v_text": Glm4Model}
    defaults = {"rms_norm_eps": 1e-5}


class GlmOcrLanguagePart(LanguagePart):
    """GLM-OCR; the defaults are those of its configuration's class, which has no keys of biases and
    of the layer behind the others."""

    families = {"glm_ocr_text": Glm4Model}
    defaults = {"rms_norm_eps": 1e-5, "attention_bias": False, "num_nextn_predict_layers": 1}


class Qwen3VlLanguagePart(LanguagePart):
    """Qwen3-VL, dense and with experts."""

    families = {"qwen3_vl_text": Qwen3Model, "qwen3_vl_moe_text": Qwen3MoeModel}


class Qwen3OmniLanguagePart(LanguagePart):
    """Qwen3-Omni's thinker; the default is that of its configuration's class."""

    families = {"qwen3_omni_moe_text": Qwen3MoeModel}
    defaults = {"norm_topk_prob": True}


class Qwen35LanguagePart(LanguagePart):
    """Qwen3.5, dense and with experts."""

    families = {"qwen3_5_text": Qwen3NextModel, "qwen3_5_moe_text": Qwen3NextModel}


class Step3LanguagePart(LanguagePart):
    """Step 3."""

    families = {"step3_text": Step3Model}


class Step3p7LanguagePart(LanguagePart):
    """Step 3.7."""

    families = {"step3p5": Step3p5Model}
