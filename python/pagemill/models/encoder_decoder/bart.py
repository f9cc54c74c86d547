"""BART and the families that came from it: mBART, PLBart, Marian, Pegasus, Blenderbot, M2M-100 and
NLLB.

Weights: `model.shared`, `model.{encoder,decoder}.layers.<i>` (bart_layers.py),
`model.{encoder,decoder}.{embed_positions, layernorm_embedding, layer_norm}` of families that have
them, `final_logits_bias`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Self

from pagemill import ops
from pagemill.layers import attention, embedding, norm
from pagemill.layers.attention import AttentionShape
from pagemill.layers.base import Weights
from pagemill.layers.cross_attention import DecoderRows
from pagemill.layers.stack import stack
from pagemill.models.base import (
    Config,
    EncoderInputs,
    ModelConfigError,
    ModelTraits,
    StepInputs,
)
from pagemill.models.config_keys import activation, flag, layer_count, positive_int, token_id
from pagemill.models.encoder_decoder.bart_layers import (
    EPS,
    LayerForm,
    decoder_layer,
    encoder_layer,
)
from pagemill.models.encoder_decoder.text_front import text_traits
from pagemill.models.waves import check_waves, waves
from pagemill.ops.trace import Tensor

Part = Literal["encoder", "decoder"]

_PARTS: tuple[Part, ...] = ("encoder", "decoder")
_BIAS = "final_logits_bias"


@dataclass(frozen=True, slots=True)
class BartForm:
    """What differs among families. `norm_first`: norms are in front of the parts of layers, and one
    is behind the last layer; `embedding_norm`: one is in front of the first. Positions are
    `learned`, in a table whose first `first_position` rows are not used, or waves, if the
    checkpoint has no table, of which the last has the number of half the features, or with
    `last_wave_ends` one less."""

    norm_first: bool = False
    embedding_norm: bool = False
    learned: bool = False
    first_position: int = 0
    last_wave_ends: bool = False
    activation: str = "gelu"
    scaled: bool = False
    """Whether embeddings are multiplied by the root of their width, if no key says so."""


class BartModel:
    """One model of the family of `form`."""

    ignored: Mapping[str, str] = {
        r"model\.(encoder|decoder)\.embed_tokens\.weight": "the shared embedding",
        r"lm_head\.weight": "the head is the shared embedding",
        r"model\.(encoder|decoder)\.embed_positions\.weights": "positions are computed",
    }
    form = BartForm(embedding_norm=True, learned=True, first_position=2)

    def __init__(self, config: Config) -> None:
        form = self.form
        self._config = config
        self._vocab_size = positive_int(config, "vocab_size")
        self._hidden_size = positive_int(config, "d_model")
        self._positions = positive_int(config, "max_position_embeddings")
        self._activation = activation(config, "activation_function", form.activation)
        scaled = flag(config, "scale_embedding", form.scaled)
        self._scale = self._hidden_size**0.5 if scaled else 1.0
        self._first_position = form.first_position
        self._layers = {which: layer_count(config, f"{which}_layers") for which in _PARTS}
        if not form.learned:
            check_waves("d_model", self._hidden_size)
        if not flag(config, "tie_word_embeddings", True) or not flag(
            config, "share_encoder_decoder_embeddings", True
        ):
            raise ModelConfigError(
                "only models with one embedding of encoder, decoder and head are supported"
            )

    @classmethod
    def from_config(cls, config: Config) -> Self:
        return cls(config)

    @property
    def traits(self) -> ModelTraits:
        return text_traits(
            self._config, self._vocab_size, self._hidden_size, self._positions, self._positions
        )

    def embeddings(self, weights: Weights, inputs: EncoderInputs) -> Tensor:
        form, prefix = self._layer_form(weights, "encoder"), "model.encoder.layers"
        x = self._embed(weights, "encoder", inputs.media.rows, inputs.positions)
        for layer in range(self._layers["encoder"]):
            x = encoder_layer(weights, f"{prefix}.{layer}", x, form)
        return self._normalized(weights, "encoder", x)

    def hidden(self, weights: Weights, inputs: StepInputs) -> Tensor:
        assert inputs.media is not None and inputs.text_rows is not None
        assert inputs.decoder_positions is not None
        form, media, text = self._layer_form(weights, "decoder"), inputs.media, inputs.text_rows
        width = form.shape.features(form.shape.heads).size
        rows = DecoderRows.of(weights, text, media.tokens, inputs.token_ids, width)

        def layer(index: int, x: Tensor) -> Tensor:
            name = f"model.decoder.layers.{index}"
            return decoder_layer(weights, name, f"kv{index}", x, media.rows, rows, form)

        x = self._embed(weights, "decoder", inputs.token_ids, inputs.decoder_positions)
        hidden = stack(weights, ops.select_rows(x, text), self._layers["decoder"], layer)
        return ops.scatter_rows(x, self._normalized(weights, "decoder", hidden), text)

    def logits(self, weights: Weights, rows: Tensor) -> Tensor:
        part = weights.shard.part(self._vocab_size)
        words = (self._vocab_size, self._hidden_size)
        matrix = weights.matrix("model.shared.weight", words, rows=part)
        bias = None
        if weights.has(_BIAS):
            bias = weights.vector(_BIAS, part.total, part=part, stored=(1, part.total))
        y = ops.linear(rows, matrix, bias, dtype="f32")
        return y if part.whole else ops.all_gather(y, part.total, shard=weights.shard)

    def _layer_form(self, weights: Weights, which: Part) -> LayerForm:
        heads = positive_int(self._config, f"{which}_attention_heads")
        head_dim, rest = divmod(self._hidden_size, heads)
        if rest:
            raise ModelConfigError(
                f"d_model {self._hidden_size} is not a multiple of {which}_attention_heads {heads}"
            )
        shape = AttentionShape(heads, heads, head_dim, head_dim**-0.5)
        out = f"model.{which}.layers.0.self_attn.out_proj"
        return LayerForm(
            attention.divide(weights, shape, out),
            positive_int(self._config, f"{which}_ffn_dim"),
            self._activation,
            self.form.norm_first,
        )

    def _embed(self, weights: Weights, which: Part, ids: Tensor, positions: Tensor) -> Tensor:
        """ids and positions i32 [T] -> [T, H]; those of media have no meaning."""
        form, words = self.form, (self._vocab_size, self._hidden_size)
        x = embedding.embedding(weights, "model.shared", ids, words, scale=self._scale)
        first, prefix = self._first_position, f"model.{which}"
        table = f"{prefix}.embed_positions"
        if form.learned or weights.has(f"{table}.weight"):
            count, bounded = self._positions, which == "encoder"
            x = embedding.add_positions(
                weights, table, x, positions, count, first=first, bounded=bounded
            )
        else:
            steps = x.width // 2 - int(form.last_wave_ends)
            x = ops.add(x, waves(weights, x, positions, first=first, steps=steps))
        if not form.embedding_norm:
            return x
        return norm.layer_norm(weights, f"{prefix}.layernorm_embedding", x, EPS)

    def _normalized(self, weights: Weights, which: Part, x: Tensor) -> Tensor:
        if not self.form.norm_first:
            return x
        return norm.layer_norm(weights, f"model.{which}.layer_norm", x, EPS)


class MBartModel(BartModel):
    """mBART, mBART-50."""

    form = BartForm(norm_first=True, embedding_norm=True, learned=True, first_position=2)


class PlBartModel(BartModel):
    """PLBart, of programming languages."""

    form = BartForm(embedding_norm=True, learned=True, first_position=2, scaled=True)


class BlenderbotModel(BartModel):
    """Blenderbot."""

    form = BartForm(norm_first=True, learned=True)


class MarianModel(BartModel):
    """Marian, OPUS-MT."""

    form = BartForm()


class PegasusModel(BartModel):
    """Pegasus."""

    form = BartForm(norm_first=True)


class M2M100Model(BartModel):
    """M2M-100, NLLB-200. Positions begin behind the padding token's id."""

    form = BartForm(norm_first=True, last_wave_ends=True, activation="relu", scaled=True)

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self._first_position = token_id(config, "pad_token_id", self._vocab_size) + 1
