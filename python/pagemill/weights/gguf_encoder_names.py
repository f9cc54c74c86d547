"""The tensors of GGUF architectures of encoders, and of T5 with its decoder, by the names of their
Hugging Face checkpoints."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from pagemill.weights.gguf_name_map import GgufNames

# Of encoders with the modules of flash-attention's BERT.
_POST_NORM_LAYER = {
    "norm1": "attn_output_norm",
    "mlp.fc2": "ffn_down",
    "norm2": "layer_output_norm",
}


def _post_norm_top(base: str) -> dict[str, str]:
    return {
        f"{base}.embeddings.word_embeddings": "token_embd",
        f"{base}.embeddings.token_type_embeddings": "token_types",
        f"{base}.emb_ln": "token_embd_norm",
    }


_BERT_ATTENTION = {
    "attention.self.query": "attn_q",
    "attention.self.key": "attn_k",
    "attention.self.value": "attn_v",
    "attention.output.dense": "attn_output",
    "attention.output.LayerNorm": "attn_output_norm",
}
_BERT_TOP = {
    "bert.embeddings.word_embeddings": "token_embd",
    "bert.embeddings.token_type_embeddings": "token_types",
    "bert.embeddings.LayerNorm": "token_embd_norm",
}
_NOMIC_ATTENTION = {"attn.Wqkv": "attn_qkv", "attn.out_proj": "attn_output"}

_T5_ATTENTION = {
    "layer.0.layer_norm": "attn_norm",
    **{f"layer.0.SelfAttention.{which}": f"attn_{which}" for which in "qkvo"},
    "layer.0.SelfAttention.relative_attention_bias": "attn_rel_b",
}


def _t5_feed_forward(name: str) -> dict[str, str]:
    return {
        f"{name}.layer_norm": "ffn_norm",
        f"{name}.DenseReluDense.wi_0": "ffn_gate",
        f"{name}.DenseReluDense.wi_1": "ffn_up",
        f"{name}.DenseReluDense.wo": "ffn_down",
    }


_T5_ENCODER = GgufNames(
    _T5_ATTENTION | _t5_feed_forward("layer.1"),
    {"shared": "token_embd", "encoder.final_layer_norm": "enc.output_norm"},
    "encoder.block",
    "enc.blk",
    otherwise={"layer.1.DenseReluDense.wi": "ffn_up"},
)
_T5_DECODER = GgufNames(
    {
        **_T5_ATTENTION,
        "layer.1.layer_norm": "cross_attn_norm",
        **{f"layer.1.EncDecAttention.{which}": f"cross_attn_{which}" for which in "qkvo"},
        "layer.1.EncDecAttention.relative_attention_bias": "cross_attn_rel_b",
        **_t5_feed_forward("layer.2"),
    },
    {},
    "decoder.block",
    "dec.blk",
    otherwise={"layer.2.DenseReluDense.wi": "ffn_up"},
)

ENCODER_NAMES: Mapping[str, GgufNames] = {
    "bert": GgufNames(
        {
            **_BERT_ATTENTION,
            "intermediate.dense": "ffn_up",
            "output.dense": "ffn_down",
            "output.LayerNorm": "layer_output_norm",
        },
        {
            **_BERT_TOP,
            "bert.embeddings.position_embeddings": "position_embd",
            "bert.pooler.dense": "cls",
            "classifier": "cls.output",
        },
        "bert.encoder.layer",
    ),
    "jina-bert-v2": GgufNames(
        {
            **_BERT_ATTENTION,
            "mlp.gated_layers_w": "ffn_gate",
            "mlp.gated_layers_v": "ffn_up",
            "mlp.wo": "ffn_down",
            "mlp.layernorm": "layer_output_norm",
        },
        _BERT_TOP,
        "bert.encoder.layer",
        otherwise={"mlp.gated_layers": "ffn_up"},
    ),
    "jina-bert-v3": GgufNames(
        {
            **_POST_NORM_LAYER,
            "mixer.Wqkv": "attn_qkv",
            "mixer.out_proj": "attn_output",
            "mlp.fc1": "ffn_up",
        },
        _post_norm_top("roberta"),
        "roberta.encoder.layers",
    ),
    "modern-bert": GgufNames(
        {
            "attn_norm": "attn_norm",
            "attn.Wqkv": "attn_qkv",
            "attn.Wo": "attn_output",
            "mlp_norm": "ffn_norm",
            "mlp.Wi": "ffn_up",
            "mlp.Wo": "ffn_down",
        },
        {
            "model.embeddings.tok_embeddings": "token_embd",
            "model.embeddings.norm": "token_embd_norm",
            "model.final_norm": "output_norm",
            "head.dense": "cls",
            "head.norm": "cls.norm",
            "classifier": "cls.output",
        },
    ),
    "nomic-bert": GgufNames(
        {
            **_POST_NORM_LAYER,
            **_NOMIC_ATTENTION,
            "mlp.fc12": "ffn_gate",
            "mlp.fc11": "ffn_up",
        },
        _post_norm_top("nomic_bert"),
        "nomic_bert.encoder.layers",
    ),
    "nomic-bert-moe": GgufNames(
        {
            **_POST_NORM_LAYER,
            **_NOMIC_ATTENTION,
            "mlp.fc1": "ffn_up",
            "mlp.router.layer": "ffn_gate_inp",
            "mlp.experts.mlp.w1": "ffn_up_exps.weight",
            "mlp.experts.mlp.w2": "ffn_down_exps.weight",
        },
        _post_norm_top("nomic_bert"),
        "nomic_bert.encoder.layers",
    ),
    "t5": replace(
        _T5_ENCODER,
        top={**_T5_ENCODER.top, "decoder.final_layer_norm": "dec.output_norm", "lm_head": "output"},
        second=_T5_DECODER,
    ),
    "t5encoder": _T5_ENCODER,
}
