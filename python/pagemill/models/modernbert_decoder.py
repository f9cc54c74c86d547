"""Decoders of ModernBERT (Ettin): its layers, in which a token attends to those before it.

Weights: `model.embeddings.{tok_embeddings,norm}`, `model.layers.<i>.{attn_norm,
attn.{q_proj,k_proj,v_proj,Wo}, mlp_norm, mlp.{Wi,Wo}}`, of which the first layer has no attn_norm,
`model.final_norm`, `lm_head.{dense,norm}`, `decoder`, tied unless stated, with a bias.
"""

from __future__ import annotations

from collections.abc import Mapping

from pagemill import ops
from pagemill.layers.base import Weights
from pagemill.layers.decoder import AttentionParts
from pagemill.layers.linear import linear
from pagemill.layers.mlp import MlpParts
from pagemill.layers.rotary import Rotary
from pagemill.models.base import IGNORED_IN_DECODERS, Config, StepInputs
from pagemill.models.config_keys import (
    FULL,
    SLIDING,
    activation,
    flag,
    layer_count,
    layer_types,
    positive_int,
)
from pagemill.models.decoder import Decoder, DecoderNames
from pagemill.ops.trace import Tensor

_EVERY = 3  # of the first configurations: one of so many layers attends to all


class ModernBertDecoderModel(Decoder):
    """One decoder of ModernBERT."""

    ignored: Mapping[str, str] = {
        **IGNORED_IN_DECODERS,
        r"decoder\..*": IGNORED_IN_DECODERS[r"lm_head\.weight"],
        r"(lm_head|head)\..*": "no head if vectors are pooled",
    }
    names = DecoderNames(
        embedding="model.embeddings.tok_embeddings",
        norm="model.final_norm",
        head="decoder",
        attention_norm="attn_norm",
        attention="attn",
        feed_forward_norm="mlp_norm",
    )

    def __init__(self, config: Config) -> None:
        layers = layer_count(config)
        every = positive_int(config, "global_attn_every_n_layers", _EVERY)
        types = layer_types(config, layers, (SLIDING, FULL)) or tuple(
            SLIDING if layer % every else FULL for layer in range(layers)
        )
        super().__init__(config, tied_by_default=True, eps=("norm_eps", 1e-5), layer_types=types)
        window = positive_int(config, "local_attention", 128) // 2
        self.windows = [window if kind == SLIDING else 0 for kind in types]
        bias = flag(config, "attention_bias", False)
        self.attention_parts = AttentionParts(output="Wo", bias=bias, output_bias=bias)
        self.mlp_parts = MlpParts(up=("Wi",), down="Wo", bias=flag(config, "mlp_bias", False))
        self.activation = activation(config, "hidden_activation", "gelu")
        self.layer_norms = True
        self.norm_bias = flag(config, "norm_bias", False)
        self._head_bias = flag(config, "classifier_bias", False)
        self._head_activation = activation(config, "classifier_activation", "gelu")
        self.head_bias = flag(config, "decoder_bias", True)

    def embed(self, weights: Weights, inputs: StepInputs) -> Tensor:
        return self.norm(weights, "model.embeddings.norm", super().embed(weights, inputs))

    def layer(self, weights: Weights, layer: int, x: Tensor, rotary: Rotary | None) -> Tensor:
        prefix = self.prefix(layer)
        # The norm of embeddings is the first layer's.
        y = x if layer == 0 else self.norm(weights, f"{prefix}.{self.names.attention_norm}", x)
        x = ops.add(x, self.attention(weights, layer, y, rotary))
        y = self.norm(weights, f"{prefix}.{self.names.feed_forward_norm}", x)
        return ops.add(x, self.feed_forward(weights, layer, y))

    def logits(self, weights: Weights, rows: Tensor) -> Tensor:
        x = linear(weights, "lm_head.dense", rows, (rows.width,), bias=self._head_bias)
        x = self.norm(weights, "lm_head.norm", ops.activation(x, self._head_activation))
        # The bias is stored whether or not the matrix of the head is the embedding.
        names, vocab = self.names, self.sizes.vocab_size
        part = weights.shard.part(vocab)
        bias = None
        if self.head_bias:
            bias = weights.vector(f"{names.head}.bias", vocab, part=part)
        matrix = names.embedding if self.sizes.tied else names.head
        matrix = weights.linear(matrix, (vocab, x.width), rows=part)
        y = ops.linear(x, matrix, bias, row_shape=(part.size,), dtype="f32")
        return y if part.whole else ops.all_gather(y, vocab, shard=weights.shard)
