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
        ("EsmModel", {"position_embedding_type": "alibi"}, "known: absolute, rotary"),
        ("EsmModel", {"is_folding_model": True}, "is_folding_model=True is not supported"),
        ("JinaBertModel", {"feed_forward_type": "mlp"}, "is 'mlp'; known: geglu, reglu"),
        ("JinaBertModel", {"feed_forward_type": []}, "is a list; known: geglu, reglu"),
        (
            "JinaBertModel",
            {"max_position_embeddings": 2**21},
            "are 4194303 distances for each; at most 8388608 together",
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
