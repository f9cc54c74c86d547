"""Settings that families of encoders reject."""

from typing import Any

import pytest

from pagemill.models.base import ModelConfigError
from pagemill.models.small_configs import config
from pagemill.models.table import model_class


@pytest.mark.parametrize(
    ("architecture", "changes", "message"),
    [
        ("AlbertModel", {"inner_group_num": 2**20}, "at most 4096 layers"),
        ("BartForConditionalGeneration", {"decoder_layers": 2**20}, "at most 4096 layers"),
        (
            "DebertaV2Model",
            {"pos_att_type": "c2p|p2p"},
            "'c2p|p2p': only c2p and p2c are supported",
        ),
        ("DebertaV2Model", {"pos_att_type": 2}, "must be a text or a list, not 2"),
        ("DebertaV2Model", {"attention_head_size": 8}, "attention_head_size 8 is not supported"),
        ("DebertaV2Model", {"conv_groups": 2}, "conv_groups 2 is not supported here, only 1"),
        ("DebertaV2Model", {"conv_kernel_size": 4}, "conv_kernel_size 4 must be odd"),
        ("DebertaV2Model", {"position_buckets": 1}, "at least 2 buckets, and distances beyond"),
        (
            "DebertaV2Model",
            {"max_relative_positions": 9},
            "at least 2 buckets, and distances beyond",
        ),
        (
            "DebertaV2Model",
            {"position_buckets": -1, "max_position_embeddings": 9000},
            "distances up to 4097 tokens are not supported, only up to 4096; lower",
        ),
        ("EsmModel", {"position_embedding_type": "alibi"}, "known: absolute, rotary"),
        ("EsmModel", {"is_folding_model": True}, "is_folding_model=True is not supported"),
        ("JinaBertModel", {"feed_forward_type": "mlp"}, "is 'mlp'; known: geglu, reglu"),
        ("JinaBertModel", {"feed_forward_type": []}, "is a list; known: geglu, reglu"),
        (
            "JinaBertModel",
            {"max_position_embeddings": 2**21},
            "are 4194303 distances for each; at most 8388608 together",
        ),
        (
            "LongT5ForConditionalGeneration",
            {"encoder_attention_type": "transient-global"},
            "is 'transient-global'; only local is supported",
        ),
        ("NeoBERT", {"hidden_act": "gelu"}, "hidden_act is 'gelu'; known: swiglu"),
        ("NomicBertModel", {"n_embd": 8, "activation_function": []}, "is a list; .* swiglu or"),
        ("NomicBertModel", {"qkv_proj_bias": True}, "qkv_proj_bias, .* must be alike"),
        ("NomicBertModel", {"moe_every_n_layers": 2}, "experts of Nomic BERT have no gates"),
        ("RoFormerModel", {"rotary_value": True}, "rotary_value=True is not supported"),
        ("T5ForConditionalGeneration", {"num_decoder_layers": 2**20}, "at most 4096 layers"),
        ("WhisperForConditionalGeneration", {"encoder_layers": 2**20}, "at most 4096 layers"),
    ],
)
def test_refusals(architecture: str, changes: dict[str, Any], message: str):
    with pytest.raises(ModelConfigError, match=message):
        model_class(architecture).from_config(config(architecture) | changes)
