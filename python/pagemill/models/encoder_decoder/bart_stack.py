"""One side of a model of BART's kind: embeddings of tokens and positions, and what its layers
(bart_layers.py) have in common.

Weights: `<prefix>.{embed_positions, layernorm_embedding, layer_norm}` of forms that have them,
`<prefix>.layers.<i>`, and the embedding of tokens.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pagemill import ops
from pagemill.layers import attention, embedding, norm
from pagemill.layers.attention import AttentionShape
from pagemill.layers.base import Weights
from pagemill.layers.cross_attention import DecoderRows
from pagemill.layers.stack import stack
from pagemill.models.base import Config, ModelConfigError, StepInputs
from pagemill.models.config_keys import activation, flag, layer_count, positive_int
from pagemill.models.encoder_decoder.bart_layers import (
    EPS,
    LayerForm,
    decoder_layer,
    encoder_layer,
)
from pagemill.models.waves import check_waves, waves
from pagemill.ops.trace import Tensor

Side = Literal["encoder", "decoder"]


@dataclass(frozen=True, slots=True)
class BartForm:
    """What differs among families. `norm_first`: norms are in front of the parts of layers, and one
    is behind the last layer; `embedding_norm`: one is in front of the first, in decoders with
    `places_behind_norm` in front of positions, too. Positions are `learned`, in a table whose first
    `first_position` rows are not used, or waves, if the checkpoint has no table, of which the last
    has the number of half the features, or with `last_wave_ends` one less."""

    norm_first: bool = False
    embedding_norm: bool = False
    places_behind_norm: bool = False
    learned: bool = False
    first_position: int = 0
    last_wave_ends: bool = False
    activation: str = "gelu"
    scaled: bool = False
    """Whether embeddings are multiplied by the root of their width, if no key says so."""


BART = BartForm(embedding_norm=True, learned=True, first_position=2)
MBART = BartForm(norm_first=True, embedding_norm=True, learned=True, first_position=2)


class BartStack:
    """The encoder or the decoder of a model; `words` is the name of its embedding of tokens."""

    def __init__(self, config: Config, form: BartForm, side: Side, prefix: str, words: str) -> None:
        self.vocab_size = positive_int(config, "vocab_size")
        self.hidden_size = positive_int(config, "d_model")
        self.positions = positive_int(config, "max_position_embeddings")
        self._form, self._side, self._prefix, self._words = form, side, prefix, words
        self._activation = activation(config, "activation_function", form.activation)
        scaled = flag(config, "scale_embedding", form.scaled)
        self._scale = self.hidden_size**0.5 if scaled else 1.0
        self._layers = layer_count(config, f"{side}_layers")
        self._intermediate_size = positive_int(config, f"{side}_ffn_dim")
        heads = positive_int(config, f"{side}_attention_heads")
        head_dim, rest = divmod(self.hidden_size, heads)
        if rest:
            raise ModelConfigError(
                f"d_model {self.hidden_size} is not a multiple of {side}_attention_heads {heads}"
            )
        self._shape = AttentionShape(heads, heads, head_dim, head_dim**-0.5)
        if not form.learned:
            check_waves("d_model", self.hidden_size)

    def encoded(self, weights: Weights, ids: Tensor, positions: Tensor) -> Tensor:
        """An encoder's rows [T, H] of texts, each of one request: ids and positions i32 [T]."""
        form = self._layer_form(weights)
        x = self._embed(weights, ids, positions)
        for layer in range(self._layers):
            x = encoder_layer(weights, f"{self._prefix}.layers.{layer}", x, form)
        return self._normalized(weights, x)

    def decoded(self, weights: Weights, inputs: StepInputs) -> Tensor:
        """A decoder's vectors [T, H], which attend to `inputs.media`; those of media have no
        meaning."""
        assert inputs.media is not None and inputs.text_rows is not None
        assert inputs.decoder_positions is not None
        form, media, text = self._layer_form(weights), inputs.media, inputs.text_rows
        width = form.shape.features(form.shape.heads).size
        rows = DecoderRows.of(weights, text, media.tokens, inputs.token_ids, width)

        def layer(index: int, x: Tensor) -> Tensor:
            name = f"{self._prefix}.layers.{index}"
            return decoder_layer(weights, name, f"kv{index}", x, media.rows, rows, form)

        x = self._embed(weights, inputs.token_ids, inputs.decoder_positions)
        hidden = stack(weights, ops.select_rows(x, text), self._layers, layer)
        return ops.scatter_rows(x, self._normalized(weights, hidden), text)

    def _layer_form(self, weights: Weights) -> LayerForm:
        out = f"{self._prefix}.layers.0.self_attn.out_proj"
        shape = attention.divide(weights, self._shape, out)
        return LayerForm(shape, self._intermediate_size, self._activation, self._form.norm_first)

    def _embed(self, weights: Weights, ids: Tensor, positions: Tensor) -> Tensor:
        """ids and positions i32 [T] -> [T, H]; those of media have no meaning."""
        form, words = self._form, (self.vocab_size, self.hidden_size)
        x = embedding.embedding(weights, self._words, ids, words, scale=self._scale)
        norm_name = f"{self._prefix}.layernorm_embedding"
        norm_first = form.places_behind_norm and self._side == "decoder"
        if norm_first:
            x = norm.layer_norm(weights, norm_name, x, EPS)
        x = self._add_places(weights, x, positions)
        if norm_first or not form.embedding_norm:
            return x
        return norm.layer_norm(weights, norm_name, x, EPS)

    def _add_places(self, weights: Weights, x: Tensor, positions: Tensor) -> Tensor:
        form, first = self._form, self._form.first_position
        table = f"{self._prefix}.embed_positions"
        if form.learned or weights.has(f"{table}.weight"):
            bounded = self._side == "encoder"
            return embedding.add_positions(
                weights, table, x, positions, self.positions, first=first, bounded=bounded
            )
        steps = x.width // 2 - int(form.last_wave_ends)
        return ops.add(x, waves(weights, x, positions, first=first, steps=steps))

    def _normalized(self, weights: Weights, x: Tensor) -> Tensor:
        if not self._form.norm_first:
            return x
        return norm.layer_norm(weights, f"{self._prefix}.layer_norm", x, EPS)
