"""Encoders and classifiers of the suite, a row each: a tiny model of random weights with each of
its heads, built by `transformers`. Sizes are those of `families.py`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from pagemill.inputs.task import Task
from transformers import (
    CONFIG_MAPPING,
    MODEL_FOR_TEXT_ENCODING_MAPPING,
    AutoModel,
    AutoModelForSequenceClassification,
    AutoModelForTextEncoding,
    AutoModelForTokenClassification,
    PreTrainedModel,
)

from tests.families import encoder_references
from tests.families.families import randomize
from tests.families.family import BY_LAYER_TYPE, NEUTRAL, SIZES

LABELS = 3
HEADS: Mapping[Task, type] = {
    Task.TOKEN_EMBED: AutoModel,
    Task.CLASSIFY: AutoModelForSequenceClassification,
    Task.TOKEN_CLASSIFY: AutoModelForTokenClassification,
}
# Fields of heads, which other heads do not read, and those that change nothing in one step.
NEUTRAL_IN_ENCODERS = NEUTRAL | {"type_vocab_size"}
_HEAD_FIELDS = frozenset(
    {"classifier_activation", "classifier_bias", "classifier_pooling", "pooler_hidden_act"}
)


@dataclass(frozen=True)
class EncoderRow:
    """As `families.Family`; `heads` are those that the family has."""

    model_type: str
    changes: Mapping[str, Any] = field(default_factory=dict[str, Any])
    unused: frozenset[str] = frozenset()
    heads: tuple[Task, ...] = tuple(HEADS)

    def neutral(self, task: Task) -> frozenset[str]:
        """The fields that need not matter to this head."""
        others = frozenset() if task is Task.CLASSIFY else _HEAD_FIELDS
        return NEUTRAL_IN_ENCODERS | self.unused | others


# Without rotary positions, biases of keys add the same number to all scores of a query.
_KEYS = frozenset({"self.key.bias"})
_SHORT = {"max_position_embeddings": 300}
_PADDED = {"pad_token_id": 5, **_SHORT}
_ESM = {**_PADDED, "mask_token_id": 4, "rope_theta": 100.0}
_CONTACTS = frozenset({"regression.weight", "regression.bias", "rotary_embeddings.inv_freq"})
_TIED = frozenset({"tie_word_embeddings"})
_DEBERTA = {"relative_attention": True, **_SHORT}
_ORDER = frozenset({"pos_att_type"})  # in which kinds of distances are listed
_DEBERTA_KEYS = frozenset({"self.key_proj.bias", "pos_key_proj.bias"})
_T5 = {
    "d_model": 96,
    "d_ff": 136,
    "d_kv": 20,
    "num_layers": 4,
    "num_heads": 6,
    "n_positions": 300,
    "relative_attention_num_buckets": 12,
    "relative_attention_max_distance": 40,
}
_VECTORS = (Task.TOKEN_EMBED,)
_BOTH_WAYS = {"is_causal": False}
_BOTH_WAYS_HEADS = (Task.TOKEN_EMBED, Task.TOKEN_CLASSIFY)
_DECODER_HEADS = (Task.CLASSIFY, Task.TOKEN_CLASSIFY)

encoder_references.register()
ENCODERS: Mapping[str, EncoderRow] = {
    "albert": EncoderRow(
        "albert",
        {"embedding_size": 40, "num_hidden_layers": 3, "num_hidden_groups": 2, **_SHORT},
        frozenset({"key.bias"}),
    ),
    "albert_inner": EncoderRow(
        "albert",
        {"embedding_size": 40, "num_hidden_layers": 2, "inner_group_num": 2, **_SHORT},
        frozenset({"key.bias"}),
    ),
    "bert": EncoderRow("bert", _SHORT, _KEYS),
    "camembert": EncoderRow("camembert", _PADDED, _KEYS),
    "data2vec": EncoderRow("data2vec-text", {**_PADDED, "type_vocab_size": 1}, _KEYS),
    "deberta_v2": EncoderRow(
        "deberta-v2",
        {
            **_DEBERTA,
            "pos_att_type": ["c2p", "p2c"],
            "max_relative_positions": 45,
            "embedding_size": 40,
            "type_vocab_size": 2,
            "conv_kernel_size": 3,
            "conv_act": "gelu",
            "pooler_hidden_act": "tanh",
        },
        _DEBERTA_KEYS | _ORDER,
    ),
    "deberta_v2_c2p": EncoderRow(
        "deberta-v2",
        {
            **_DEBERTA,
            "pos_att_type": ["c2p"],
            "position_buckets": 41,
            "max_relative_positions": 50,
            "type_vocab_size": 1,
        },
        _DEBERTA_KEYS | _ORDER,
    ),
    "deberta_v2_p2c": EncoderRow(
        "deberta-v2",
        {**_DEBERTA, "pos_att_type": ["p2c"], "norm_rel_ebd": "layer_norm"},
        _ORDER | {"max_relative_positions"},  # that of positions
    ),
    "deberta_v3": EncoderRow(
        "deberta-v2",
        {
            **_DEBERTA,
            "pos_att_type": ["p2c", "c2p"],
            "position_buckets": 16,
            "max_relative_positions": 70,
            "norm_rel_ebd": "layer_norm",
            "share_att_key": True,
            "position_biased_input": False,
        },
        _ORDER,
    ),
    "distilbert": EncoderRow(
        "distilbert",
        {"dim": 96, "hidden_dim": 136, "n_layers": 4, "n_heads": 6, **_SHORT},
        frozenset({"k_lin.bias"}),
    ),
    "electra": EncoderRow("electra", {"embedding_size": 40, **_SHORT}, _KEYS),
    "ernie": EncoderRow("ernie", {"use_task_id": True, **_SHORT}, _KEYS),
    "ernie_1": EncoderRow("ernie", _SHORT, _KEYS),
    "esm1b": EncoderRow("esm", {**_ESM, "emb_layer_norm_before": True}, _KEYS | _CONTACTS),
    "esm2": EncoderRow(
        "esm", {**_ESM, "position_embedding_type": "rotary", "token_dropout": True}, _CONTACTS
    ),
    "eurobert": EncoderRow(
        "eurobert",
        {"num_key_value_heads": 6, "head_dim": 16, "classifier_pooling": "mean"},
        _TIED,
    ),
    "eurobert_late": EncoderRow(
        "eurobert",
        {"num_key_value_heads": 6, "head_dim": 16, "classifier_pooling": "late"},
        _TIED,
        heads=(Task.CLASSIFY,),
    ),
    "gemma3": EncoderRow(
        "gemma3_text",
        {
            "use_bidirectional_attention": True,
            "sliding_window": 13,
            "layer_types": ["sliding_attention", "full_attention"] * 2,
            "query_pre_attn_scalar": 30,
            "rope_parameters": BY_LAYER_TYPE,
        },
        # Of windows, the half counts; vectors have no logits.
        _TIED | {"sliding_window", "final_logit_softcapping"},
        heads=_VECTORS,
    ),
    "gte": EncoderRow("gte", {"type_vocab_size": 2}),
    "gte_untyped": EncoderRow("gte", {"type_vocab_size": 0}),
    "jina2": EncoderRow(
        "jina_bert", _SHORT, _KEYS | {"hidden_act"}, heads=(Task.TOKEN_EMBED, Task.CLASSIFY)
    ),
    "jina2_code": EncoderRow(
        "jina_bert",
        {**_SHORT, "of_code": True},
        frozenset({"hidden_act", "layer_norm_k.bias"}),
        heads=(Task.TOKEN_EMBED, Task.CLASSIFY),
    ),
    "jina3": EncoderRow("jina_embeddings_v3", {"type_vocab_size": 1}, _TIED),
    "megatron_bert": EncoderRow("megatron-bert", _SHORT, _KEYS),
    "modernbert": EncoderRow(
        "modernbert",
        {
            "norm_eps": 0.03,
            "local_attention": 13,
            "layer_types": ["full_attention", "sliding_attention"] * 2,
        },
    ),
    "modernbert_biases": EncoderRow(
        "modernbert",
        {
            "norm_eps": 0.03,
            "local_attention": 13,
            "layer_types": ["sliding_attention", "full_attention"] * 2,
            "attention_bias": True,
            "mlp_bias": True,
            "norm_bias": True,
            "classifier_bias": True,
            "classifier_pooling": "mean",
        },
    ),
    "mpnet": EncoderRow("mpnet", _SHORT, frozenset({"attn.k.bias"})),
    "neobert": EncoderRow(
        "neobert",
        {"intermediate_size": 145},  # of which 96 are left; 97 would be 104
        frozenset({"max_length"}),
        heads=(Task.TOKEN_EMBED, Task.CLASSIFY),
    ),
    "nomic_moe": EncoderRow("nomic_bert_moe", heads=_VECTORS),
    "nomic_bert": EncoderRow("nomic_bert", {"head_dim": 16}, frozenset({"head_dim"})),
    "rembert": EncoderRow(
        "rembert",
        {"input_embedding_size": 40, "output_embedding_size": 56, **_SHORT},
        _KEYS | {"output_embedding_size"},  # of the head of a masked language model
    ),
    "privacy_filter": EncoderRow(
        "openai_privacy_filter",
        {
            "pad_token_id": 0,
            "head_dim": 20,
            "sliding_window": 7,
            "num_local_experts": 5,
            "num_experts_per_tok": 2,
            "intermediate_size": 40,
            "swiglu_limit": 0.5,
            "rope_parameters": {
                "rope_type": "yarn",
                "rope_theta": 1e4,
                "factor": 4.0,
                "beta_fast": 32.0,
                "beta_slow": 1.0,
                "truncate": False,
                "original_max_position_embeddings": 64,
            },
        },
        _TIED | {"router_aux_loss_coef", "output_router_logits"},
        heads=(Task.TOKEN_EMBED, Task.TOKEN_CLASSIFY),
    ),
    "roberta_prelayernorm": EncoderRow(
        "roberta-prelayernorm", {**_PADDED, "type_vocab_size": 1}, _KEYS
    ),
    "roformer": EncoderRow(
        "roformer", {"embedding_size": 40, **_SHORT}, frozenset({"embed_positions.weight"})
    ),
    "roberta": EncoderRow("roberta", {**_PADDED, "type_vocab_size": 1}, _KEYS),
    # As in the small models, heads do not share the features of a token.
    "mt5": EncoderRow(
        "mt5",
        {**_T5, "feed_forward_proj": "gated-gelu", "num_heads": 10},
        _TIED,
        heads=_VECTORS,
    ),
    "t5": EncoderRow("t5", {**_T5, "feed_forward_proj": "relu"}, _TIED, heads=_VECTORS),
    "umt5": EncoderRow("umt5", {**_T5, "feed_forward_proj": "gated-gelu"}, _TIED, heads=_VECTORS),
    "xlm_roberta_xl": EncoderRow("xlm-roberta-xl", {**_PADDED, "type_vocab_size": 1}, _KEYS),
    "xlm_roberta": EncoderRow("xlm-roberta", {**_PADDED, "type_vocab_size": 1}, _KEYS),
    "gpt2": EncoderRow(
        "gpt2",
        {"n_embd": 96, "n_layer": 4, "n_head": 6, "n_positions": 300},
        _TIED | {"c_attn.bias"},
        heads=(Task.CLASSIFY,),
    ),
    "llama_both_ways": EncoderRow("llama", _BOTH_WAYS, _TIED, _BOTH_WAYS_HEADS),
    "qwen2_both_ways": EncoderRow("qwen2", _BOTH_WAYS, _TIED, _BOTH_WAYS_HEADS),
    "qwen3_both_ways": EncoderRow("qwen3", _BOTH_WAYS, _TIED, _BOTH_WAYS_HEADS),
    "jamba": EncoderRow(
        "jamba",
        {
            "attn_layer_period": 2,
            "attn_layer_offset": 1,
            "expert_layer_period": 2,
            "expert_layer_offset": 0,
            "num_experts": 4,
            "use_mamba_kernels": False,
            "mamba_d_state": 5,
            "mamba_dt_rank": 7,
        },
        _TIED,
        heads=(Task.CLASSIFY,),
    ),
    "llama": EncoderRow("llama", unused=_TIED, heads=_DECODER_HEADS),
    "qwen2": EncoderRow("qwen2", unused=_TIED, heads=_DECODER_HEADS),
    "qwen3": EncoderRow("qwen3", unused=_TIED),
}


def make(
    name: str,
    task: Task,
    directory: Path,
    *,
    seed: int = 0,
    labels: int = LABELS,
    changes: Mapping[str, Any] | None = None,
) -> PreTrainedModel:
    """Save a checkpoint of the row `name` with the head for `task`, with `changes` of its
    configuration; returns its reference."""
    torch.manual_seed(seed)
    row = ENCODERS[name]
    kind = CONFIG_MAPPING[row.model_type]
    known = kind().to_dict().keys()
    fields = {key: value for key, value in SIZES.items() if key in known} | dict(row.changes)
    fields |= changes or {}
    config = kind(**fields, num_labels=labels)
    head = HEADS[task]
    if kind in MODEL_FOR_TEXT_ENCODING_MAPPING and task is Task.TOKEN_EMBED:  # T5 without decoder
        head = AutoModelForTextEncoding
    made: object = head.from_config(config, attn_implementation="eager")
    assert isinstance(made, PreTrainedModel)
    model = made.eval()
    randomize(model)
    model.save_pretrained(directory)
    return model
