"""Names of published checkpoints."""

from __future__ import annotations

import pytest

from pagemill.weights.errors import WeightsError
from pagemill.weights.location import TensorLocation
from pagemill.weights.published_names import as_layers_use


def _tensors(*names: str) -> dict[str, TensorLocation]:
    return {name: TensorLocation(name, "f32", (1,), "file", 0) for name in names}


@pytest.mark.parametrize(
    ("published", "used"),
    [
        ("embed.weight", "model.embed_tokens.weight"),
        ("head.weight", "head.weight"),
        ("norm.weight", "model.norm.weight"),
        ("hc_head_fn", "model.hc_head.hc_fn"),
        ("layers.3.attn.kv_norm.weight", "model.layers.3.attn.norm.weight"),
        ("layers.3.attn.compressor.norm.weight", "model.layers.3.attn.compressor.norm.weight"),
        ("mtp.0.norm.weight", "mtp.0.norm.weight"),
        ("mtp.0.attn.kv_norm.weight", "mtp.0.attn.norm.weight"),
        # As `transformers` writes it.
        ("model.layers.3.attn.norm.weight", "model.layers.3.attn.norm.weight"),
    ],
)
def test_deepseek_v4(published: str, used: str) -> None:
    ((name, location),) = as_layers_use("deepseek_v4", _tensors(published)).items()
    assert name == location.name == used


@pytest.mark.parametrize(
    ("published", "used"),
    [
        ("moe.gate.weight", "mlp.gate.weight"),
        ("moe.router_bias", "mlp.gate.e_score_correction_bias"),
        ("moe.gate_proj.weight", "mlp.experts.gate_proj.weight"),
        ("moe.down_proj.weight_scale_inv", "mlp.experts.down_proj.weight_scale_inv"),
        ("share_expert.up_proj.weight", "mlp.shared_experts.up_proj.weight"),
        ("mlp.up_proj.weight", "mlp.up_proj.weight"),
        ("transformer.shared_head.norm.weight", "shared_head.norm.weight"),
    ],
)
def test_step(published: str, used: str) -> None:
    tensors = _tensors(f"model.layers.3.{published}")
    ((name, location),) = as_layers_use("step3p5", tensors).items()
    assert name == location.name == f"model.layers.3.{used}"
    assert list(as_layers_use("step3p7", tensors)) == [f"model.language_model.layers.3.{used}"]


def test_rwkv6_has_matrices_without_modules() -> None:
    attention = "rwkv.blocks.3.attention"
    tensors = _tensors(
        f"{attention}.time_maa_w2", f"{attention}.time_decay_w1", f"{attention}.time_maa_w"
    )
    assert list(as_layers_use("rwkv6", tensors)) == [
        f"{attention}.time_maa_w2.weight",
        f"{attention}.time_decay_w1.weight",
        f"{attention}.time_maa_w",
    ]


@pytest.mark.parametrize(
    ("published", "used"),
    [
        ("layers.3.attention.wq.weight", "self_attn.q_proj.weight"),
        ("layers.3.attention.indexer.wq_b.weight", "self_attn.indexer.wq_b.weight"),
        ("layers.3.attention.indexer.ssmax_scaling.b", "self_attn.indexer.softmax_scaling.bias"),
        ("layers.3.attention_norm.weight", "input_layernorm.weight"),
        ("layers.3.gate.weight", "mlp.gate.weight"),
        ("layers.3.experts.12.w3.weight", "mlp.experts.12.up_proj.weight"),
        ("layers.3.shared_experts.w2.weight", "mlp.shared_experts.down_proj.weight"),
        ("layers.3.feed_forward.w1.weight", "mlp.gate_proj.weight"),
    ],
)
def test_mistral_large4(published: str, used: str) -> None:
    layer = "model.language_model.layers.3"
    assert list(as_layers_use("mistral_large4", _tensors(published))) == [f"{layer}.{used}"]


def test_janus_has_the_layers_of_siglip() -> None:
    attention = "model.vision_model.encoder.layers.3.self_attn"
    assert list(as_layers_use("janus", _tensors(f"{attention}.projection_layer.bias"))) == [
        f"{attention}.out_proj.bias"
    ]


@pytest.mark.parametrize("model_type", ["bert", "esm"])
def test_norms_of_the_first_checkpoints(model_type: str) -> None:
    norm = "encoder.layer.3.output.LayerNorm"
    tensors = _tensors(f"{norm}.gamma", f"{norm}.beta", "embeddings.gamma")
    used = list(as_layers_use(model_type, tensors))
    assert used == [f"{norm}.weight", f"{norm}.bias", "embeddings.gamma"]


def test_other_models_have_the_names_of_their_files() -> None:
    tensors = _tensors("embed.weight")
    assert as_layers_use("llama", tensors) is tensors
    assert as_layers_use(["deepseek_v4"], tensors) is tensors


def test_two_tensors_of_one_name_are_refused() -> None:
    both = _tensors("model.norm.weight", "norm.weight")
    with pytest.raises(WeightsError, match=r"norm.weight and another tensor are both model.norm"):
        as_layers_use("deepseek_v4", both)


@pytest.mark.parametrize("model_type", ["internvl_chat", "qianfan_ocr"])
def test_internvl_with_its_own_code(model_type: str) -> None:
    layer, used = "vision_model.encoder.layers.3", "vision_tower.encoder.layer.3"
    names = {
        "vision_model.embeddings.class_embedding": "vision_tower.embeddings.cls_token",
        "vision_model.embeddings.position_embedding": "vision_tower.embeddings.position_embeddings",
        f"{layer}.attn.qkv.bias": f"{used}.attention.qkv.bias",
        f"{layer}.attn.q_norm.weight": f"{used}.attention.q_norm.weight",
        f"{layer}.attn.proj.weight": f"{used}.attention.projection_layer.weight",
        f"{layer}.norm2.weight": f"{used}.layernorm_after.weight",
        f"{layer}.ls1": f"{used}.lambda_1",
        "mlp1.3.weight": "multi_modal_projector.linear_2.weight",
        "language_model.model.layers.0.mlp.up_proj.weight": "",
    }
    for published, expected in names.items():
        (name,) = as_layers_use(model_type, _tensors(published))
        assert name == (expected or published)
