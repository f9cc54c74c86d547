"""The encoder that families start from: BERT's layers, of which a family says what differs.

    class MyModel(Encoder):
        base_prefix = "my_bert."

        def __init__(self, config: Config) -> None:
            super().__init__(config)
            self.typed = False

A family inherits from this class and from no other family. Every token attends to those before and
after it, so a prompt runs in one step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

from pagemill import ops
from pagemill.layers import attention, embedding, norm
from pagemill.layers.attention import AttentionShape
from pagemill.layers.base import Weights
from pagemill.layers.computed import row
from pagemill.layers.linear import linear
from pagemill.layers.mlp import MlpParts, mlp
from pagemill.layers.rotary import Rotary, RotaryTable, bind_rotaries
from pagemill.layers.stack import stack
from pagemill.models.base import Config, ModelConfigError, ModelTraits, StepInputs
from pagemill.models.config_keys import (
    activation,
    epsilon,
    layer_count,
    number,
    positive_int,
    refuse,
)
from pagemill.ops.trace import Tensor
from pagemill.weights.json_file import shown


@dataclass(frozen=True, slots=True)
class EncoderNames:
    """Modules behind the model's prefix; those of a layer are behind its number. `qkv` and `up` are
    those of `attention.project_qkv` and `MlpParts`. `norm` is that of embeddings, and `positions` a
    table, None if there is none. With a `last_norm`, behind the layers, those of a layer are in
    front of its branches."""

    words: str = "embeddings.word_embeddings"
    positions: str | None = "embeddings.position_embeddings"
    types: str = "embeddings.token_type_embeddings"
    norm: str | None = "embeddings.LayerNorm"
    last_norm: str | None = None
    layers: str = "encoder.layer"
    qkv: tuple[str, ...] = (
        "attention.self.query",
        "attention.self.key",
        "attention.self.value",
    )
    attended: str = "attention.output.dense"
    attended_norm: str = "attention.output.LayerNorm"
    up: tuple[str, ...] = ("intermediate.dense",)
    down: str = "output.dense"
    down_norm: str = "output.LayerNorm"


@dataclass(frozen=True, slots=True)
class MaskedHead:
    """Modules of the head of a masked language model: a linear layer and a norm; and the matrix
    that is left out if it is that of words, with the vector of its biases."""

    dense: str
    norm: str
    decoder: str
    bias: str


@dataclass(frozen=True, slots=True)
class EncoderSizes:
    """Sizes of every encoder, under BERT's keys."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    layers: int
    heads: int
    head_dim: int
    max_positions: int
    norm_eps: float

    @classmethod
    def read(
        cls, config: Config, *, eps: str = "layer_norm_eps", head_dim: int | None = None
    ) -> Self:
        """Read them; `eps` is the key of what norms add to the variance; without a `head_dim` heads
        share the features of a token.

        Raises:
            ModelConfigError: one is missing, or they do not fit each other.
        """
        hidden = positive_int(config, "hidden_size")
        heads = positive_int(config, "num_attention_heads")
        if head_dim is None:
            head_dim, rest = divmod(hidden, heads)
            if rest:
                raise ModelConfigError(f"{heads} heads cannot share {hidden} features")
        return cls(
            vocab_size=positive_int(config, "vocab_size"),
            hidden_size=hidden,
            intermediate_size=positive_int(config, "intermediate_size"),
            layers=layer_count(config),
            heads=heads,
            head_dim=head_dim,
            max_positions=positive_int(config, "max_position_embeddings"),
            norm_eps=epsilon(config, eps, 1e-12),
        )


class Encoder:
    """A `Model` and a `Classifier` (base.py). Its constructor reads BERT's configuration; a
    family's changes what differs, in these attributes and methods:

    - `base_prefix`, `names`: of the weights; `classifier_pooling`: which token's vector the
      classifier of a text reads, or "mean".
    - `typed`: the second text of a pair has another token type; otherwise all have type 0.
    - `first_position`: the row of the first position in the table of positions.
    - `attention_scale` of scores; `bias`: of linear layers; `gated`, `activation`: of feed-forward
      layers.
    - `rotary`: the table of each layer; without, positions are learned; `interleaved`: how its
      pairs lie. `windows`: how many tokens before and after it, itself included, a token attends to
      in each layer, 0 = all.
    - `embed`, `attention`, `feed_forward`, `layer`: the parts of the model; `add_types` and
      `add_positions`: of embeddings; `normalize`: of queries and keys;
      `distance_biases`: what attention adds to scores.
    - `classify`, `classify_tokens`: its heads; `masked`: the names of that of a masked language
      model, if there is one, and `masked_width`: how many features its matrix of words reads.
    """

    ignored: Mapping[str, str] = {
        r".*\.position_ids": "positions count up from 0",
        r"(.*\.)?pooler\..*": "a classifier's layer over the first token",
        r"(cls|lm_head|vocab_\w+|generator_\w+|discriminator_\w+)\..*": "heads of the training"
        " objectives",
        r"(classifier|pre_classifier)\..*": "no classifier if vectors are pooled",
        r"linear\.weight": "ColBERT's layer, of vectors of tokens",
    }
    base_prefix: str
    names: ClassVar[EncoderNames] = EncoderNames()
    masked: ClassVar[MaskedHead | None] = None

    def __init__(
        self,
        config: Config,
        *,
        eps: str = "layer_norm_eps",
        positions: str = "absolute",
        head_dim: int | None = None,
    ) -> None:
        """`eps` and `head_dim` are those of `EncoderSizes.read`; `positions` is the kind that the
        configuration states if it states one.

        Raises:
            ModelConfigError: a key is missing, or asks for what is not supported.
        """
        refuse(config, "is_decoder", "add_cross_attention")
        if config.get("position_embedding_type", positions) != positions:
            raise ModelConfigError(
                f"position_embedding_type {shown(config['position_embedding_type'])} is not"
                f" supported here, only {positions}"
            )
        self.sizes = EncoderSizes.read(config, eps=eps, head_dim=head_dim)
        self.classifier_pooling = "first"
        self.masked_width = self.sizes.hidden_size
        self.num_types = int(number(config, "type_vocab_size", 2, least=0))
        self.typed = self.num_types > 1
        self.first_position = 0
        self.attention_scale = self.sizes.head_dim**-0.5
        self.bias = True
        self.gated = False
        self.activation = activation(config, "hidden_act", "gelu")
        self.rotary: Sequence[RotaryTable] = ()
        self.interleaved = False
        self.windows: Sequence[int] = (0,) * self.sizes.layers

    @classmethod
    def from_config(cls, config: Config) -> Self:
        return cls(config)

    @property
    def traits(self) -> ModelTraits:
        sizes = self.sizes
        longest = sizes.max_positions - self.first_position
        if longest < 1:
            raise ModelConfigError(
                f"max_position_embeddings is {sizes.max_positions}: a table of which"
                f" {self.first_position} rows are in front of the first position needs more"
            )
        return ModelTraits(
            sizes.vocab_size,
            sizes.hidden_size,
            longest,
            causal=False,
            generates=False,
            token_types=self.typed,
        )

    def name(self, module: str) -> str:
        """The whole name of a module outside the layers."""
        return f"{self.base_prefix}{module}"

    def prefix(self, layer: int) -> str:
        """The name in front of the modules of layer number `layer`."""
        return self.name(f"{self.names.layers}.{layer}")

    def norm(self, weights: Weights, name: str, x: Tensor) -> Tensor:
        """x [N, H] normalized by the norm `name`."""
        return norm.layer_norm(weights, name, x, self.sizes.norm_eps)

    def embed(self, weights: Weights, inputs: StepInputs) -> Tensor:
        """Token ids -> [T, H]: what the first layer reads."""
        return self.embed_as(weights, inputs, self.sizes.hidden_size)

    def embed_narrow(self, weights: Weights, inputs: StepInputs, width: int, name: str) -> Tensor:
        """As `embed`, of embeddings of `width` features that the linear layer `name` widens."""
        x = self.embed_as(weights, inputs, width)
        return linear(weights, self.name(name), x, (self.sizes.hidden_size,), bias=True)

    def embed_as(self, weights: Weights, inputs: StepInputs, width: int) -> Tensor:
        """Words, token types and positions of `width` features, added and normalized."""
        sizes, names = self.sizes, self.names
        words = (sizes.vocab_size, width)
        x = embedding.embedding(weights, self.name(names.words), inputs.token_ids, words)
        x = self.add_types(weights, inputs, inputs.with_media(x))
        x = self.add_positions(weights, inputs, x)
        return x if names.norm is None else self.norm(weights, self.name(names.norm), x)

    def add_positions(self, weights: Weights, inputs: StepInputs, x: Tensor) -> Tensor:
        """x [T, width] plus the embeddings of positions, if the model has any."""
        table = self.names.positions
        if table is None or self.rotary:
            return x
        first = self.first_position
        count = self.sizes.max_positions - first
        name, positions = self.name(table), inputs.positions
        return embedding.add_positions(weights, name, x, positions, count, first=first)

    def add_types(self, weights: Weights, inputs: StepInputs, x: Tensor) -> Tensor:
        """x [T, width] plus the embeddings of token types, if the model has any."""
        types, shape = self.name(self.names.types), (self.num_types, x.width)
        if inputs.token_types is not None:
            kind = embedding.embedding(weights, types, inputs.token_types, shape)
            return ops.add(x, kind)
        if weights.has(f"{types}.weight"):
            return ops.add(x, row(weights, f"{types}.weight", 0, shape))
        return x

    def attention(self, weights: Weights, layer: int, x: Tensor, rotary: Rotary | None) -> Tensor:
        """x [T, H] -> [T, H]: the attention of a layer."""
        sizes, prefix = self.sizes, self.prefix(layer)
        scale, window = self.attention_scale, self.windows[layer]
        shape = AttentionShape(sizes.heads, sizes.heads, sizes.head_dim, scale, window)
        out = f"{prefix}.{self.names.attended}"
        shape = attention.divide(weights, shape, out)
        names = [f"{prefix}.{name}" for name in self.names.qkv]
        q, k, v = attention.project_qkv(weights, names, x, shape, bias=self.bias)
        q, k = self.normalize(weights, layer, (q, k), shape)
        if rotary is not None:
            q, k = rotary(q, k)
        biases = self.distance_biases(weights, layer, shape)
        attended = attention.attend_both_ways(q, k, v, shape, biases)
        return attention.output(weights, out, attended, shape, x.width, bias=self.bias)

    def normalize(
        self, weights: Weights, layer: int, qk: tuple[Tensor, Tensor], shape: AttentionShape
    ) -> tuple[Tensor, Tensor]:
        """q and k of a layer, [T, heads of this rank, head_dim], normalized, if they are to be."""
        del weights, layer, shape
        return qk

    def distance_biases(self, weights: Weights, layer: int, shape: AttentionShape) -> Tensor | None:
        """What a layer adds to the scores of this rank's heads by the distance of a key, as
        `ops.attention` takes it; None for nothing."""
        del weights, layer, shape
        return None

    def feed_forward(self, weights: Weights, layer: int, x: Tensor) -> Tensor:
        """x [T, H] -> [T, H]: the feed-forward part of a layer."""
        parts = MlpParts(self.names.up, self.names.down, gated=self.gated, bias=self.bias)
        size = self.sizes.intermediate_size
        return mlp(weights, self.prefix(layer), x, size, self.activation, parts)

    def layer(self, weights: Weights, layer: int, x: Tensor, rotary: Rotary | None) -> Tensor:
        """x [T, H] -> [T, H]: each branch is added, then the sum is normalized; or with a
        `last_norm`, what each branch reads is."""
        prefix = self.prefix(layer)
        if self.names.last_norm is not None:
            y = self.norm(weights, f"{prefix}.{self.names.attended_norm}", x)
            x = ops.add(x, self.attention(weights, layer, y, rotary))
            y = self.norm(weights, f"{prefix}.{self.names.down_norm}", x)
            return ops.add(x, self.feed_forward(weights, layer, y))
        y = self.attention(weights, layer, x, rotary)
        x = self.norm(weights, f"{prefix}.{self.names.attended_norm}", ops.add(y, x))
        y = self.feed_forward(weights, layer, x)
        return self.norm(weights, f"{prefix}.{self.names.down_norm}", ops.add(y, x))

    def hidden(self, weights: Weights, inputs: StepInputs) -> Tensor:
        tables = self.rotary or (None,) * self.sizes.layers
        rotary = bind_rotaries(weights, tables, inputs.positions, interleaved=self.interleaved)
        x = self.embed(weights, inputs)
        layers, last = self.sizes.layers, self.names.last_norm
        x = stack(weights, x, layers, lambda i, x: self.layer(weights, i, x, rotary[i]))
        return x if last is None else self.norm(weights, self.name(last), x)

    def logits(self, weights: Weights, rows: Tensor) -> Tensor:
        del weights, rows
        raise ModelConfigError("an encoder has no language model head")

    def before_pooling(self, weights: Weights, hidden: Tensor) -> Tensor:
        del weights
        return hidden

    def classify(self, weights: Weights, rows: Tensor, labels: int) -> Tensor:
        return self.classify_by(weights, rows, labels, ops.ActivationKind.TANH)

    def classify_by(
        self,
        weights: Weights,
        rows: Tensor,
        labels: int,
        kind: ops.ActivationKind,
        names: tuple[str, str] = ("classifier.dense", "classifier.out_proj"),
    ) -> Tensor:
        """rows [N, H] -> f32 [N, labels] by two linear layers of these names."""
        x = linear(weights, names[0], rows, (rows.width,), bias=True)
        x = ops.activation(x, kind)
        return linear(weights, names[1], x, (labels,), bias=True, dtype="f32")

    def classify_tokens(self, weights: Weights, rows: Tensor, labels: int) -> Tensor:
        return linear(weights, "classifier", rows, (labels,), bias=True, dtype="f32")

    def masked_logits(self, weights: Weights, rows: Tensor) -> Tensor:
        head, sizes = self.masked, self.sizes
        if head is None:
            raise ModelConfigError("the head of a masked language model is not supported here")
        x = linear(weights, head.dense, rows, (self.masked_width,), bias=True)
        x = self.norm(weights, head.norm, ops.activation(x, self.activation))
        own = weights.has(f"{head.decoder}.weight")
        matrix = head.decoder if own else self.name(self.names.words)
        part = weights.shard.part(sizes.vocab_size)
        biases = weights.vector(head.bias, part.total, part=part)
        table = (part.total, self.masked_width)
        y = ops.linear(x, weights.matrix(f"{matrix}.weight", table, rows=part), biases)
        return y if part.whole else ops.all_gather(y, part.total, shard=weights.shard)
