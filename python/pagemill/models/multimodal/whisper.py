"""Whisper: an encoder of sound, and a decoder that attends to its rows. A prompt begins with one
recording of 30 seconds.

Weights: `model.encoder.` (whisper_encoder.py); `model.decoder.{embed_tokens, embed_positions,
layer_norm}`, `model.decoder.layers.<i>.{self_attn, encoder_attn}.{q,k,v,out}_proj`, the norms
`self_attn_layer_norm`, `encoder_attn_layer_norm` and `final_layer_norm`, `fc1`, `fc2`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self

from pagemill import ops
from pagemill.inputs.prepared_media import PreparedMedia
from pagemill.inputs.rendered_prompt import MediaFeatures
from pagemill.layers import attention, embedding, norm
from pagemill.layers.attention import AttentionShape
from pagemill.layers.base import Weights
from pagemill.layers.cross_attention import DecoderRows
from pagemill.layers.linear import linear_of_parts
from pagemill.layers.stack import ALIGNED, name_in_layer, stack
from pagemill.models.audio.log_mel import HOP, SAMPLING_RATE, log_mel, padded
from pagemill.models.audio.whisper_encoder import WhisperEncoder
from pagemill.models.base import (
    Config,
    EncoderInputs,
    MediaTraits,
    ModelConfigError,
    ModelTraits,
    StepInputs,
)
from pagemill.models.config_keys import (
    activation,
    as_list,
    flag,
    layer_count,
    positive_int,
    token_id,
)
from pagemill.models.encoder_decoder.bart_layers import EPS, LayerForm, decoder_layer
from pagemill.ops.shard import Part
from pagemill.ops.trace import Tensor
from pagemill.weights.json_file import shown

_DECODER = "model.decoder"


class WhisperModel:
    """One Whisper model. `front` tokens of a prompt stand for the recording."""

    ignored: Mapping[str, str] = {r"proj_out\.weight": "the head is the embedding"}

    def __init__(self, config: Config) -> None:
        self._encoder = WhisperEncoder(config)
        self._vocab_size = positive_int(config, "vocab_size")
        self._hidden_size = positive_int(config, "d_model")
        self._layers = layer_count(config, "decoder_layers")
        self._intermediate_size = positive_int(config, "decoder_ffn_dim")
        self._activation = activation(config, "activation_function", "gelu")
        self._scale = self._hidden_size**0.5 if flag(config, "scale_embedding", False) else 1.0
        self._placeholder = token_id(config, "pad_token_id", self._vocab_size)
        self.front = positive_int(config, "max_source_positions")
        self._positions = positive_int(config, "max_target_positions")
        heads = positive_int(config, "decoder_attention_heads")
        if self._hidden_size % heads:
            raise ModelConfigError(
                f"d_model {self._hidden_size} is not a multiple of decoder_attention_heads {heads}"
            )
        head_dim = self._hidden_size // heads
        self._shape = AttentionShape(heads, heads, head_dim, head_dim**-0.5)
        self._alignment_heads = _alignment_heads(config, self._layers, heads)

    @classmethod
    def from_config(cls, config: Config) -> Self:
        return cls(config)

    @property
    def traits(self) -> ModelTraits:
        media = MediaTraits(
            rows=self.front,
            channels=self._encoder.channels,
            tokens=self.front,
            width=self._hidden_size,
            placeholders={"audio": self._placeholder},
            encoder_decoder=True,
            text_rows=True,
        )
        return ModelTraits(
            self._vocab_size,
            self._hidden_size,
            self.front + self._positions,
            causal=True,
            generates=True,
            media=media,
            alignment_heads=sum(map(len, self._alignment_heads.values())),
        )

    def features(self, audio: PreparedMedia) -> MediaFeatures:
        """Samples [samples], with silence behind them."""
        samples, most = audio.values, self._encoder.max_frames * HOP
        if samples.ndim != 1 or not 0 < len(samples) <= most:
            raise ValueError(
                f"audio of this model must be [samples], at most {most} of them"
                f" ({most / SAMPLING_RATE:g} s), got {list(samples.shape)}"
            )
        mel = log_mel(padded(samples, most), self._encoder.bins)
        return MediaFeatures(self._encoder.features(mel), self.front)

    def embeddings(self, weights: Weights, inputs: EncoderInputs) -> Tensor:
        encoder = weights.within("model.encoder.")
        return self._encoder.hidden(encoder, inputs.media.rows, inputs.positions)

    def hidden(self, weights: Weights, inputs: StepInputs) -> Tensor:
        assert inputs.media is not None and inputs.text_rows is not None
        media, text = inputs.media, inputs.text_rows
        out = f"{_DECODER}.layers.0.self_attn.out_proj"
        shape = attention.divide(weights, self._shape, out)
        form = LayerForm(
            shape, self._intermediate_size, self._activation, norm_first=True, key_bias=False
        )
        width = shape.features(shape.heads).size
        rows = DecoderRows.of(weights, text, media.tokens, inputs.token_ids, width)

        def layer(index: int, x: Tensor) -> Tensor:
            def aligned(y: Tensor) -> None:
                if index in self._alignment_heads and weights.shard.ranks == 1:
                    self._name_aligned(weights, index, y, media.rows, rows)

            prefix, cache = f"{_DECODER}.layers.{index}", f"kv{index}"
            return decoder_layer(weights, prefix, cache, x, media.rows, rows, form, aligned)

        x = self._embed(weights, inputs)
        hidden = stack(weights, ops.select_rows(x, text), self._layers, layer)
        hidden = norm.layer_norm(weights, f"{_DECODER}.layer_norm", hidden, EPS)
        return ops.scatter_rows(x, hidden, text)

    def logits(self, weights: Weights, rows: Tensor) -> Tensor:
        return embedding.logits(
            weights, rows, self._vocab_size, f"{_DECODER}.embed_tokens", head="proj_out"
        )

    def _embed(self, weights: Weights, inputs: StepInputs) -> Tensor:
        """Embeddings of all tokens [T, H]; those of media have no meaning."""
        assert inputs.decoder_positions is not None
        words = (self._vocab_size, self._hidden_size)
        name = f"{_DECODER}.embed_tokens"
        x = embedding.embedding(weights, name, inputs.token_ids, words, scale=self._scale)
        table, positions = f"{_DECODER}.embed_positions", inputs.decoder_positions
        return embedding.add_positions(weights, table, x, positions, self._positions)

    def _name_aligned(
        self, weights: Weights, index: int, x: Tensor, encoded: Tensor, rows: DecoderRows
    ) -> None:
        """Names what the alignment heads of a layer compare: queries of x [text_rows, H] and keys
        of encoded [media_rows, H], in one value [tokens, heads * head_dim]."""
        module, shape = f"{_DECODER}.layers.{index}.encoder_attn", self._shape
        heads = self._alignment_heads[index]
        parts = [Part(at, at + 1, shape.heads).times(shape.head_dim) for at in heads]
        q = linear_of_parts(weights, f"{module}.q_proj", x, parts, bias=True)
        k = linear_of_parts(weights, f"{module}.k_proj", encoded, parts)
        name_in_layer(rows.with_width(weights, q.width).joined(q, k), ALIGNED)


def _alignment_heads(config: Config, layers: int, heads: int) -> dict[int, list[int]]:
    """The heads of each layer that `alignment_heads` names as pairs [layer, head]; empty if the
    model has no such key.

    Raises:
        ModelConfigError: it names something else.
    """
    stated = config.get("alignment_heads")
    listed = (as_list(stated) or [stated]) if stated else []
    found: dict[int, set[int]] = {}
    for pair in listed:
        match pair:
            case [int(layer), int(head)] if 0 <= layer < layers and 0 <= head < heads:
                found.setdefault(layer, set()).add(head)
            case _:
                raise ModelConfigError(
                    f"alignment_heads has {shown(pair)}, not [layer, head] of {layers} layers with"
                    f" {heads} heads"
                )
    return {layer: sorted(named) for layer, named in found.items()}
