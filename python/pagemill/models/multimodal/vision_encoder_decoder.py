"""Images to text by an encoder and a decoder of several kinds: TrOCR, which reads a line of text,
Donut and Nougat, which read a page. A prompt begins with one image.

Weights: `encoder.` (vit_vision.py, swin_vision.py), `enc_to_dec_proj` if the decoder is not as wide
as the encoder and does not read its vectors as they are, `decoder.model.decoder.` (bart_stack.py),
and the head `decoder.output_projection` or `decoder.lm_head`, unless it is the embedding.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self

from pagemill.inputs.prepared_media import PreparedMedia
from pagemill.inputs.rendered_prompt import MediaFeatures
from pagemill.layers import embedding
from pagemill.layers.base import Weights
from pagemill.layers.linear import linear
from pagemill.models.base import (
    Config,
    EncoderInputs,
    MediaTraits,
    ModelConfigError,
    ModelTraits,
    StepInputs,
)
from pagemill.models.config_keys import flag, inner_config, positive_int, token_id
from pagemill.models.encoder_decoder.bart_stack import BART, MBART, BartForm, BartStack
from pagemill.models.vision.swin_vision import SwinVisionTower
from pagemill.models.vision.vit_vision import VitVisionTower
from pagemill.ops.trace import Tensor
from pagemill.weights.json_file import shown

_DECODER = "decoder.model.decoder"
_WORDS = f"{_DECODER}.embed_tokens"
_ENCODERS = {"deit": VitVisionTower, "donut-swin": SwinVisionTower, "vit": VitVisionTower}
_HEADS = {"bart": "lm_head", "mbart": "lm_head", "trocr": "output_projection"}


class VisionEncoderDecoderModel:
    """One model of an encoder of `_ENCODERS` and a decoder of `_HEADS`."""

    ignored: Mapping[str, str] = {
        **{
            rf"encoder\.{unread}\.(weight|bias)": reason
            for unread, reason in (tower.unread for tower in _ENCODERS.values())
        },
        r"encoder\..*\.relative_position_index": "numbers of places are computed",
        rf"{_DECODER.replace('.', r'[.]')}\.embed_positions\._float_tensor": "not used",
    }

    def __init__(self, config: Config) -> None:
        encoder, decoder = inner_config(config, "encoder"), inner_config(config, "decoder")
        self._tower = _ENCODERS[_kind(encoder, "encoder", _ENCODERS)](encoder)
        kind = _kind(decoder, "decoder", _HEADS)
        self._head = f"decoder.{_HEADS[kind]}"
        form = _form(kind, decoder)
        self._decoder = BartStack(decoder, form, "decoder", _DECODER, _WORDS)
        self._placeholder = token_id(decoder, "pad_token_id", self._decoder.vocab_size)
        width = self._decoder.hidden_size
        if kind == "trocr":
            width = positive_int(decoder, "cross_attention_hidden_size", width)
        self._projects = width != self._tower.hidden_size
        if self._projects and width != self._decoder.hidden_size:
            raise ModelConfigError(
                f"cross_attention_hidden_size is {width}; vectors of the encoder have"
                f" {self._tower.hidden_size} elements"
            )
        self._width = width

    @classmethod
    def from_config(cls, config: Config) -> Self:
        return cls(config)

    @property
    def traits(self) -> ModelTraits:
        tokens = self._tower.tokens
        media = MediaTraits(
            rows=tokens,
            channels=self._tower.channels,
            tokens=tokens,
            width=self._width,
            placeholders={"image": self._placeholder},
            encoder_decoder=True,
            text_rows=True,
            step_rows=self._tower.step_rows,
        )
        return ModelTraits(
            self._decoder.vocab_size,
            self._decoder.hidden_size,
            tokens + self._decoder.positions,
            causal=True,
            generates=True,
            media=media,
        )

    def features(self, image: PreparedMedia) -> MediaFeatures:
        return self._tower.features(image)

    def embeddings(self, weights: Weights, inputs: EncoderInputs) -> Tensor:
        x = self._tower.hidden(weights.within("encoder."), inputs)
        if not self._projects:
            return x
        return linear(weights, "enc_to_dec_proj", x, (self._width,), bias=True)

    def hidden(self, weights: Weights, inputs: StepInputs) -> Tensor:
        return self._decoder.decoded(weights, inputs)

    def logits(self, weights: Weights, rows: Tensor) -> Tensor:
        name = self._head if weights.has(f"{self._head}.weight") else _WORDS
        return embedding.logits(weights, rows, self._decoder.vocab_size, name)


def _kind(config: Config, part: str, known: Mapping[str, object]) -> str:
    """The type of a part of the model.

    Raises:
        ModelConfigError: it is not a known one.
    """
    kind = config.get("model_type")
    if not isinstance(kind, str) or kind not in known:
        raise ModelConfigError(
            f"the {part} is of type {shown(kind)}, which is not supported; known:"
            f" {', '.join(known)}"
        )
    return kind


def _form(kind: str, config: Config) -> BartForm:
    if kind != "trocr":
        return MBART if kind == "mbart" else BART
    learned = flag(config, "use_learned_position_embeddings", True)
    padding = token_id(config, "pad_token_id", positive_int(config, "vocab_size"))
    return BartForm(
        embedding_norm=flag(config, "layernorm_embedding", True),
        learned=learned,
        first_position=2 if learned else padding + 1,
        last_wave_ends=True,
    )
