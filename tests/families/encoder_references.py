"""References of encoders that `transformers` does not have: plain models, made known to it."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForSequenceClassification,
    BertConfig,
    PretrainedConfig,
    PreTrainedModel,
)

from tests.families.reference_parts import largest_shares, rotated


class JinaBertConfig(BertConfig):
    """BERT's, with the names of ALiBi and of gates."""

    model_type = "jina_bert"

    def __init__(self, **fields: Any) -> None:
        named = {
            "position_embedding_type": "alibi",
            "feed_forward_type": "geglu",
            "of_code": False,
        }
        super().__init__(**{**named, **fields})


class NomicMoeConfig(PretrainedConfig):
    """By GPT-2's keys, as published."""

    model_type = "nomic_bert_moe"
    attribute_map = {
        "hidden_size": "n_embd",
        "num_hidden_layers": "n_layer",
        "num_attention_heads": "n_head",
        "intermediate_size": "n_inner",
        "max_position_embeddings": "n_positions",
    }

    def __init__(self, **fields: Any) -> None:
        sizes = {
            "vocab_size": 257,
            "n_embd": 96,
            "n_layer": 4,
            "n_head": 6,
            "n_inner": 136,
            "n_positions": 300,
            "layer_norm_epsilon": 0.03,
            "type_vocab_size": 1,
            "activation_function": "gelu",
            "rotary_emb_base": 1e4,
            "rotary_emb_fraction": 1.0,
            "qkv_proj_bias": True,
            "mlp_fc1_bias": True,
            "mlp_fc2_bias": True,
            "num_experts": 5,
            "moe_top_k": 2,
            "moe_every_n_layers": 2,
        }
        super().__init__(**{**sizes, "tie_word_embeddings": False, **fields})


class NeoBertConfig(PretrainedConfig):
    """NeoBERT's."""

    model_type = "neobert"

    def __init__(self, **fields: Any) -> None:
        sizes = {
            "vocab_size": 257,
            "hidden_size": 96,
            "intermediate_size": 136,
            "num_hidden_layers": 4,
            "num_attention_heads": 6,
            "max_length": 300,
            "norm_eps": 0.03,
            "hidden_act": "SwiGLU",
        }
        super().__init__(**{**sizes, "tie_word_embeddings": False, **fields})


def _by_head(x: torch.Tensor, heads: int) -> torch.Tensor:
    """[B, T, H] -> [B, heads, T, H / heads]."""
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def _attended(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, biases: torch.Tensor | float = 0.0
) -> torch.Tensor:
    """Of all tokens, [B, T, H]."""
    scores = q @ k.mT * q.shape[-1] ** -0.5 + biases
    return (scores.softmax(-1) @ v).transpose(1, 2).flatten(2)


class _JinaSelf(nn.Module):
    def __init__(self, config: Any) -> None:
        super().__init__()
        for name in ("query", "key", "value"):
            self.add_module(name, nn.Linear(config.hidden_size, config.hidden_size))
        self.heads = config.num_attention_heads
        self.layer_norm_q = self.layer_norm_k = nn.Identity()
        if config.of_code:
            self.layer_norm_q = nn.LayerNorm(config.hidden_size, config.layer_norm_eps)
            self.layer_norm_k = nn.LayerNorm(config.hidden_size, config.layer_norm_eps)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.layer_norm_q(self.query(x)), self.layer_norm_k(self.key(x)), self.value(x)
        q, k, v = (_by_head(y, self.heads) for y in (q, k, v))
        places = torch.arange(x.shape[1])
        # Of 6 heads: the slopes of 4, and the first and third of 8.
        slopes = torch.tensor([2.0**-e for e in (2, 4, 6, 8, 1, 3)])
        distances = (places[:, None] - places).abs()
        return _attended(q, k, v, -slopes[:, None, None] * distances)


class _JinaOutput(nn.Module):
    def __init__(self, config: Any) -> None:
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)
        self.LayerNorm = nn.LayerNorm(config.hidden_size, config.layer_norm_eps)


class _JinaMlp(nn.Module):
    def __init__(self, config: Any) -> None:
        super().__init__()
        inner = config.intermediate_size
        self.gated_layers = nn.Linear(config.hidden_size, 2 * inner, bias=False)
        self.wo = nn.Linear(inner, config.hidden_size)
        self.layernorm = nn.LayerNorm(config.hidden_size, config.layer_norm_eps)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        gate, up = self.gated_layers(x).chunk(2, -1)
        return self.layernorm(x + self.wo(functional.gelu(gate) * up))


class _JinaLayer(nn.Module):
    def __init__(self, config: Any) -> None:
        super().__init__()
        self.attention = nn.ModuleDict({"self": _JinaSelf(config), "output": _JinaOutput(config)})
        self.mlp = _JinaMlp(config)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        output: Any = self.attention["output"]
        return self.mlp(output.LayerNorm(x + output.dense(self.attention["self"](x))))


class _JinaMlpOfCode(nn.Module):
    def __init__(self, config: Any) -> None:
        super().__init__()
        inner = config.intermediate_size
        self.up_gated_layer = nn.Linear(config.hidden_size, 2 * inner, bias=False)
        self.down_layer = nn.Linear(inner, config.hidden_size)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        up, gate = self.up_gated_layer(x).chunk(2, -1)
        return self.down_layer(functional.gelu(gate) * up)


class _JinaLayerOfCode(nn.Module):
    def __init__(self, config: Any) -> None:
        super().__init__()
        self.attention = nn.ModuleDict({"self": _JinaSelf(config), "output": _JinaOutput(config)})
        self.mlp = _JinaMlpOfCode(config)
        self.layer_norm_1 = nn.LayerNorm(config.hidden_size, config.layer_norm_eps)
        self.layer_norm_2 = nn.LayerNorm(config.hidden_size, config.layer_norm_eps)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        output: Any = self.attention["output"]
        y = output.LayerNorm(x + output.dense(self.attention["self"](x)))
        x = self.layer_norm_1(x + y)
        return self.layer_norm_2(x + self.mlp(x))


class _JinaEmbeddings(nn.Module):
    def __init__(self, config: Any) -> None:
        super().__init__()
        self.word_embeddings = nn.Embedding(config.vocab_size, config.hidden_size)
        self.token_type_embeddings = nn.Embedding(config.type_vocab_size, config.hidden_size)
        self.LayerNorm = nn.LayerNorm(config.hidden_size, config.layer_norm_eps)


class JinaBertModel(PreTrainedModel):
    """Source: the published implementations (hf.co/jinaai/jina-bert-implementation, and that of
    code, hf.co/jinaai/jina-bert-v2-qk-post-norm)."""

    config_class = JinaBertConfig

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.embeddings = _JinaEmbeddings(config)
        kind = _JinaLayerOfCode if config.of_code else _JinaLayer
        layers = nn.ModuleList(kind(config) for _ in range(config.num_hidden_layers))
        self.encoder = nn.ModuleDict({"layer": layers})
        self.pooler = nn.ModuleDict({"dense": nn.Linear(config.hidden_size, config.hidden_size)})
        self.post_init()

    def forward(self, input_ids: torch.Tensor, token_type_ids: torch.Tensor | None = None) -> Any:
        types = torch.zeros_like(input_ids) if token_type_ids is None else token_type_ids
        parts = self.embeddings
        x = parts.LayerNorm(parts.word_embeddings(input_ids) + parts.token_type_embeddings(types))
        layers: Any = self.encoder["layer"]
        for layer in layers:
            x = layer(x)
        return SimpleNamespace(last_hidden_state=x)


class JinaBertForSequenceClassification(PreTrainedModel):
    """As BERT's."""

    config_class = JinaBertConfig

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.bert = JinaBertModel(config)
        self.classifier = nn.Linear(config.hidden_size, config.num_labels)
        self.post_init()

    def forward(self, input_ids: torch.Tensor, **inputs: torch.Tensor) -> Any:
        first = self.bert(input_ids, **inputs).last_hidden_state[:, 0]
        return SimpleNamespace(logits=self.classifier(self.bert.pooler["dense"](first).tanh()))


class _NomicAttention(nn.Module):
    def __init__(self, config: Any) -> None:
        super().__init__()
        self.config = config
        self.Wqkv = nn.Linear(config.n_embd, 3 * config.n_embd)
        self.out_proj = nn.Linear(config.n_embd, config.n_embd)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (_by_head(y, self.config.n_head) for y in self.Wqkv(x).chunk(3, -1))
        base = self.config.rotary_emb_base
        return self.out_proj(_attended(rotated(q, base), rotated(k, base), v))


class _NomicMlp(nn.Module):
    def __init__(self, config: Any) -> None:
        super().__init__()
        self.fc1 = nn.Linear(config.n_embd, config.n_inner)
        self.fc2 = nn.Linear(config.n_inner, config.n_embd)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc2(functional.gelu(self.fc1(x)))


class _NomicWeights(nn.Module):
    def __init__(self, config: Any) -> None:
        super().__init__()
        shape = (config.num_experts * config.n_inner, config.n_embd)
        self.w1 = nn.Parameter(torch.zeros(shape))
        self.w2 = nn.Parameter(torch.zeros(shape))


class _NomicExperts(nn.Module):
    def __init__(self, config: Any) -> None:
        super().__init__()
        self.config = config
        self.router = nn.ModuleDict(
            {"layer": nn.Linear(config.n_embd, config.num_experts, bias=False)}
        )
        self.experts = nn.Module()
        self.experts.mlp = _NomicWeights(config)
        self.experts.bias = nn.Parameter(torch.zeros(config.n_embd))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        config, weights = self.config, self.experts.mlp
        up, down = (w.unflatten(0, (config.num_experts, -1)) for w in (weights.w1, weights.w2))
        shares = largest_shares(self.router["layer"](x).softmax(-1), config.moe_top_k)
        inner = functional.gelu(torch.einsum("bth,eih->btei", x, up))
        y = torch.einsum("btei,eih,bte->bth", inner, down, shares)
        return y + self.experts.bias


class _NomicLayer(nn.Module):
    def __init__(self, config: Any, sparse: bool) -> None:
        super().__init__()
        self.attn = _NomicAttention(config)
        self.mlp = _NomicExperts(config) if sparse else _NomicMlp(config)
        self.norm1 = nn.LayerNorm(config.n_embd, config.layer_norm_epsilon)
        self.norm2 = nn.LayerNorm(config.n_embd, config.layer_norm_epsilon)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.norm1(x + self.attn(x))
        return self.norm2(x + self.mlp(x))


class NomicBertModel(PreTrainedModel):
    """Source: the published implementation (hf.co/nomic-ai/nomic-embed-text-v2-moe)."""

    config_class = NomicMoeConfig

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.embeddings = nn.ModuleDict(
            {
                "word_embeddings": nn.Embedding(config.vocab_size, config.n_embd),
                "token_type_embeddings": nn.Embedding(config.type_vocab_size, config.n_embd),
            }
        )
        self.emb_ln = nn.LayerNorm(config.n_embd, config.layer_norm_epsilon)
        every = config.moe_every_n_layers
        layers = (_NomicLayer(config, i % every == 1) for i in range(config.n_layer))
        self.encoder = nn.ModuleDict({"layers": nn.ModuleList(layers)})
        self.post_init()

    def forward(self, input_ids: torch.Tensor) -> Any:
        words, types = self.embeddings["word_embeddings"], self.embeddings["token_type_embeddings"]
        x = self.emb_ln(words(input_ids) + types(torch.zeros_like(input_ids)))
        layers: Any = self.encoder["layers"]
        for layer in layers:
            x = layer(x)
        return SimpleNamespace(last_hidden_state=x)


def _rotated_pairs(x: torch.Tensor) -> torch.Tensor:
    """x [B, heads, T, D] with neighbours rotated."""
    halves = torch.cat([x[..., ::2], x[..., 1::2]], -1)
    a, b = rotated(halves, 1e4).chunk(2, -1)
    return torch.stack([a, b], -1).flatten(-2)


class _NeoLayer(nn.Module):
    def __init__(self, config: Any) -> None:
        super().__init__()
        hidden = config.hidden_size
        inner = 8 * math.ceil(2 * config.intermediate_size // 3 / 8)
        self.heads = config.num_attention_heads
        self.qkv = nn.Linear(hidden, 3 * hidden, bias=False)
        self.wo = nn.Linear(hidden, hidden, bias=False)
        self.ffn = nn.ModuleDict(
            {
                "w12": nn.Linear(hidden, 2 * inner, bias=False),
                "w3": nn.Linear(inner, hidden, bias=False),
            }
        )
        self.attention_norm = nn.RMSNorm(hidden, config.norm_eps)
        self.ffn_norm = nn.RMSNorm(hidden, config.norm_eps)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = _by_head(self.qkv(self.attention_norm(x)), self.heads).chunk(3, -1)
        x = x + self.wo(_attended(_rotated_pairs(q), _rotated_pairs(k), v))
        gate, up = self.ffn["w12"](self.ffn_norm(x)).chunk(2, -1)
        return x + self.ffn["w3"](functional.silu(gate) * up)


class NeoBERT(PreTrainedModel):
    """Source: the published implementation (hf.co/chandar-lab/NeoBERT)."""

    config_class = NeoBertConfig

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.encoder = nn.Embedding(config.vocab_size, config.hidden_size)
        self.transformer_encoder = nn.ModuleList(
            _NeoLayer(config) for _ in range(config.num_hidden_layers)
        )
        self.layer_norm = nn.RMSNorm(config.hidden_size, config.norm_eps)
        self.post_init()

    def forward(self, input_ids: torch.Tensor) -> Any:
        x = self.encoder(input_ids)
        for layer in self.transformer_encoder:
            x = layer(x)
        return SimpleNamespace(last_hidden_state=self.layer_norm(x))


class NeoBERTForSequenceClassification(PreTrainedModel):
    """Two layers on the first token."""

    config_class = NeoBertConfig

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.model = NeoBERT(config)
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)
        self.classifier = nn.Linear(config.hidden_size, config.num_labels)
        self.post_init()

    def forward(self, input_ids: torch.Tensor) -> Any:
        first = self.model(input_ids).last_hidden_state[:, 0]
        return SimpleNamespace(logits=self.classifier(self.dense(first).tanh()))


def register() -> None:
    """Makes the references known to `transformers`."""
    for kind, model in (
        (JinaBertConfig, JinaBertModel),
        (NomicMoeConfig, NomicBertModel),
        (NeoBertConfig, NeoBERT),
    ):
        AutoConfig.register(kind.model_type, kind, exist_ok=True)
        AutoModel.register(kind, model, exist_ok=True)
    classifiers = AutoModelForSequenceClassification
    classifiers.register(JinaBertConfig, JinaBertForSequenceClassification, exist_ok=True)
    classifiers.register(NeoBertConfig, NeoBERTForSequenceClassification, exist_ok=True)
