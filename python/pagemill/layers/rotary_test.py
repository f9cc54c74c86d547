"""Rotary frequencies of each rule equal those that `transformers` computes."""

from typing import Any

import numpy as np
import pytest
import torch
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from pagemill.layers.rotary import rotary_table

RULES: list[dict[str, Any]] = [
    {"rope_type": "default", "rope_theta": 1e4},
    {"rope_type": "default", "rope_theta": 1e6},
    {"rope_type": "linear", "rope_theta": 1e6, "factor": 8.0},
    {
        "rope_type": "llama3",
        "rope_theta": 5e5,
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    },
    {
        "rope_type": "yarn",
        "rope_theta": 1e6,
        "factor": 4.0,
        "original_max_position_embeddings": 32768,
    },
    {
        "rope_type": "yarn",
        "rope_theta": 1e4,
        "factor": 40.0,
        "mscale": 1.0,
        "mscale_all_dim": 0.5,
        "beta_fast": 16,
        "original_max_position_embeddings": 4096,
    },
    {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 4.0},
]


@pytest.mark.parametrize("rope", RULES, ids=lambda rope: f"{rope['rope_type']}")
@pytest.mark.parametrize("head_dim", [24, 64, 128, 256])
def test_frequencies(rope: dict[str, Any], head_dim: int):
    config = LlamaConfig(
        head_dim=head_dim, max_position_embeddings=131072, rope_parameters=dict(rope)
    )
    reference = LlamaRotaryEmbedding(config)
    table = rotary_table(rope, head_dim, 131072)
    expected = reference.inv_freq.numpy()
    # The reference's f32 power function is good to one unit in the last place, 1.2e-7, and three
    # more roundings may differ after it.
    np.testing.assert_allclose(np.array(table.inv_freq), expected, rtol=4e-7, atol=0)
    assert table.mscale == pytest.approx(reference.attention_scaling, rel=1e-12)
    assert np.array_equal(np.float32(table.inv_freq), table.inv_freq)


def test_partial_rotation():
    table = rotary_table({"rope_theta": 1e4, "partial_rotary_factor": 0.5}, 64, 100)
    assert len(table.inv_freq) == 16


def test_factors_divide():
    plain = rotary_table({"rope_theta": 1e4}, 8, 100)
    factors = {"rope_type": "factors", "rope_theta": 1e4, "factors": [1.0, 2.0, 4.0, 8.0]}
    scaled = rotary_table(factors, 8, 100)
    assert scaled.inv_freq == tuple(
        float(np.float32(f / 2**i)) for i, f in enumerate(plain.inv_freq)
    )


def test_alpha_stretches_the_base():
    alpha = rotary_table({"rope_type": "dynamic", "rope_theta": 1e4, "alpha": 16.0}, 8, 100)
    plain = rotary_table({"rope_theta": 1e4 * 16.0 ** (8 / 6)}, 8, 100)
    assert alpha.inv_freq == plain.inv_freq


LONGROPE = {
    "rope_type": "longrope",
    "rope_theta": 1e4,
    "original_max_position_embeddings": 4096,
    "short_factor": [1.0, 1.5, 2.0, 2.5],
    "long_factor": [1.0, 4.0, 9.0, 16.0],
}


@pytest.mark.parametrize(("positions", "key"), [(4096, "short_factor"), (4097, "long_factor")])
def test_longrope_divides_by_the_factors_of_the_longest_context(positions: int, key: str):
    config = LlamaConfig(
        head_dim=8, max_position_embeddings=positions, rope_parameters=dict(LONGROPE)
    )
    init = ROPE_INIT_FUNCTIONS["longrope"]
    expected, mscale = init(config, torch.device("cpu"), seq_len=positions)
    table = rotary_table(LONGROPE, 8, positions)
    np.testing.assert_allclose(np.array(table.inv_freq), expected.numpy(), rtol=4e-7, atol=0)
    assert table.mscale == pytest.approx(mscale, rel=1e-12)
    served = rotary_table({**LONGROPE, "max_model_len": 4096}, 8, 131072)
    assert served.inv_freq == rotary_table(LONGROPE, 8, 4096).inv_freq
    divided = LONGROPE | {"rope_type": "factors", "factors": LONGROPE[key]}
    np.testing.assert_allclose(
        np.array(table.inv_freq), rotary_table(divided, 8, positions).inv_freq, rtol=4e-7
    )


def test_longrope_has_the_scales_that_phimoe_states():
    rope = LONGROPE | {"short_mscale": 1.25, "long_mscale": 1.5}
    assert rotary_table(rope, 8, 4096).mscale == 1.25
    assert rotary_table(rope, 8, 4097).mscale == 1.5


@pytest.mark.parametrize(
    ("rope", "message"),
    [
        ({"rope_type": "longer", "rope_theta": 1e4}, "unknown rope_type 'longer'; known: default"),
        (LONGROPE, "short_factor must list 32 numbers"),
        (LONGROPE | {"short_factor": [0.0] * 32}, "short_factor must be a number > 0"),
        ({"rope_type": "linear", "rope_theta": 1e4}, "'linear' needs 'factor'"),
        ({"rope_type": "factors", "rope_theta": 1e4, "factors": [1.0]}, "1 rope factors for 32"),
    ],
)
def test_message(rope: dict[str, Any], message: str):
    with pytest.raises(ValueError, match=message):
        rotary_table(rope, 64, 100)
