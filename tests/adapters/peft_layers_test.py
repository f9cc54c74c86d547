"""Adapters of PEFT on embeddings, heads and experts: eight of them and the model itself in one
batch, each with the tokens that PEFT makes."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from pagemill.engine.outputs import EngineError
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import save_file

from tests.adapters.engine_adapters import adapters_of
from tests.adapters.random_adapter import write_adapter
from tests.families.families import make
from tests.parity.engine_model import Model
from tests.parity.greedy import wrong_tokens
from tests.parity.small_engine import generate

TOKENS = 12
# Not bare numbers: PEFT would take those of layers for them.
ADAPTERS = [f"adapter{number}" for number in range(8)]
_NEAR_TIE = 1e-3  # tests/parity/engine_model.py
_UNTIED = {"tie_word_embeddings": False}
_EMBEDDINGS = ["embed_tokens", "lm_head", "q_proj"]


def peft_model(model: Model, path: Path, **config: Any) -> PeftModel:
    """`model` with ADAPTERS of random weights, which are saved in `path`."""
    torch.manual_seed(7)
    made: PeftModel | None = None
    for number, name in enumerate(ADAPTERS):
        options = {"lora_alpha": 8 + 4 * number, "init_lora_weights": False, **config}
        lora = LoraConfig(r=2 + number % 3, **options)
        if made is None:
            made = get_peft_model(model.reference, lora, adapter_name=name)
        else:
            made.add_adapter(name, lora)
    assert made is not None
    with torch.no_grad():
        for name, parameter in made.named_parameters():
            if "lora_" in name:
                parameter.normal_(0, 0.3 if "lora_B" in name or "embedding_B" in name else 0.2)
    made.save_pretrained(path)
    return made.eval()


def check(model: Model, reference: PeftModel, path: Path, **options: Any) -> None:
    """One batch with every adapter and the model itself gets the tokens of `reference`."""
    names = ["", *ADAPTERS, ""]
    prompts = [model.prompt(seed, 5 + 9 * seed) for seed in range(len(names))]
    with model.engine(max_num_seqs=16, enable_lora=True, **options) as core:
        adapters = adapters_of(core)
        for name in ADAPTERS:
            adapters.load_adapter(name, str(path / name))
        ids = [adapters.id_of(name) if name else 0 for name in names]
        answers = generate(core, prompts, TOKENS, ids)
    for name, prompt, answer in zip(names, prompts, answers, strict=True):
        if name:
            reference.set_adapter(name)
            wrong = wrong_tokens(reference, prompt, answer.tokens, _NEAR_TIE)
        else:
            with reference.disable_adapter():
                wrong = wrong_tokens(reference, prompt, answer.tokens, _NEAR_TIE)
        assert not wrong, "\n".join([f"adapter {name!r}", *wrong])
    # They differ, or nothing was tested.
    reference.set_adapter(ADAPTERS[1])
    assert wrong_tokens(reference, prompts[0], answers[0].tokens, _NEAR_TIE)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("family", "changes", "config"),
    [
        ("llama", _UNTIED, {"target_modules": _EMBEDDINGS}),
        ("llama", {}, {"target_modules": _EMBEDDINGS}),
        ("llama", {}, {"target_modules": ["embed_tokens"], "ensure_weight_tying": True}),
        ("gemma3", {}, {"target_modules": ["embed_tokens", "down_proj"], "use_rslora": True}),
        ("gemma3", {}, {"target_modules": ["embed_tokens", "k_proj"], "use_dora": True}),
        ("qwen2", {}, {"target_modules": ["lm_head"]}),
    ],
    ids=["untied", "tied", "tied_adapter", "scaled", "dora", "head"],
)
def test_embeddings_and_heads(
    family: str, changes: dict[str, Any], config: dict[str, Any], tmp_path: Path
) -> None:
    model = Model(tmp_path / "model", make(family, tmp_path / "model", changes=changes))
    check(model, peft_model(model, tmp_path, **config), tmp_path)


@pytest.mark.filterwarnings("ignore")
def test_names_of_a_models_own_state(tmp_path: Path) -> None:
    model = Model(tmp_path / "model", make("llama", tmp_path / "model"))
    changed = ["embed_tokens", "q_proj", "down_proj"]
    reference = peft_model(model, tmp_path, target_modules=changed, use_dora=True)
    state = reference.state_dict()
    for adapter in ADAPTERS:
        own = {name: value.contiguous() for name, value in state.items() if adapter in name}
        assert any(name.endswith(f".lora_A.{adapter}.weight") for name in own)
        save_file(own, tmp_path / adapter / "adapter_model.safetensors")
    check(model, reference, tmp_path)


_EXPERTS = ["experts.gate_up_proj", "experts.down_proj"]
_WHOLE_EXPERTS = {"tensor_parallel_size": 2, "enable_expert_parallel": True}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("family", "parameters"),
    [
        ("qwen3_moe", _EXPERTS),
        ("mixtral", [*_EXPERTS, "mlp.gate.weight"]),  # whose checkpoint has other names
        ("granite_moe", ["experts.down_proj"]),
        ("gpt_oss", _EXPERTS),
        ("llama4", _EXPERTS),
    ],
)
def test_parameters_of_all_experts(family: str, parameters: list[str], tmp_path: Path) -> None:
    model = Model(tmp_path / "model", make(family, tmp_path / "model"))
    config = {"target_modules": ["o_proj"], "target_parameters": parameters}
    check(model, peft_model(model, tmp_path, **config), tmp_path)


@pytest.mark.parametrize("options", [{}, _WHOLE_EXPERTS], ids=["one_rank", "whole_experts"])
def test_layers_of_single_experts(options: dict[str, Any], tmp_path: Path) -> None:
    model = Model(tmp_path / "model", make("qwen3_moe", tmp_path / "model"))
    merged = copy.deepcopy(model.reference)
    tensors: dict[str, torch.Tensor] = {}
    random = torch.Generator().manual_seed(3)
    for name, experts in merged.named_modules():
        if not name.endswith("mlp.experts"):
            continue
        inner = experts.down_proj.shape[2]
        rows = {"gate_proj": slice(inner), "up_proj": slice(inner, None), "down_proj": slice(None)}
        for i in range(0, experts.num_experts, 2):  # every other one stays as it is
            for layer, part in rows.items():
                fused = experts.down_proj if layer == "down_proj" else experts.gate_up_proj
                weight = fused.data[i, part]
                rank = 1 + i % 3
                a = torch.randn(rank, weight.shape[1], generator=random) / 4
                b = torch.randn(weight.shape[0], rank, generator=random) / 4
                weight += 8 / rank * b @ a
                prefix = f"base_model.model.{name}.{i}.{layer}"
                tensors |= {f"{prefix}.lora_A.weight": a, f"{prefix}.lora_B.weight": b}
    (tmp_path / "adapter").mkdir()
    write_adapter(tmp_path / "adapter", tensors, r=2, lora_alpha=8)
    prompts = [model.prompt(seed, 20 + seed) for seed in range(3)]
    with model.engine(enable_lora=True, **options) as core:
        adapters = adapters_of(core)
        adapters.load_adapter("single", str(tmp_path / "adapter"))
        number = adapters.id_of("single")
        answers = generate(core, prompts, TOKENS, [number, 0, number])
    for i, (prompt, answer) in enumerate(zip(prompts, answers, strict=True)):
        reference = model.reference if i == 1 else merged
        wrong = wrong_tokens(reference, prompt, answer.tokens, _NEAR_TIE)
        assert not wrong, "\n".join(wrong)
    assert wrong_tokens(model.reference, prompts[0], answers[0].tokens, _NEAR_TIE)


def test_experts_without_adapters_are_named(tmp_path: Path) -> None:
    """Those of DBRX, whose parameters are all of one shape."""
    model = Model(tmp_path / "model", make("dbrx", tmp_path / "model"))
    parameter = model.reference.transformer.blocks[1].ffn.experts.mlp.w1
    name = "base_model.model.transformer.blocks.1.ffn.experts.mlp"
    tensors = {
        f"{name}.lora_A.weight": torch.zeros(2, parameter.shape[1]),
        f"{name}.lora_B.weight": torch.zeros(parameter.shape[0], 2),
    }
    (tmp_path / "adapter").mkdir()
    write_adapter(tmp_path / "adapter", tensors, r=2, lora_alpha=1)
    message = r"cannot adapt: 'transformer.blocks.1.ffn.experts.mlp'.*merge_and_unload"
    with model.engine(enable_lora=True) as core, pytest.raises(EngineError, match=message):
        adapters_of(core).load_adapter("experts", str(tmp_path / "adapter"))


def test_experts_that_do_not_fit(tmp_path: Path) -> None:
    model = Model(tmp_path / "model", make("qwen3_moe", tmp_path / "model"))
    config = model.reference.config
    inner, hidden = 2 * config.moe_intermediate_size, config.hidden_size
    name = "base_model.model.model.layers.1.mlp.experts"
    with model.engine(enable_lora=True) as core:
        for rows, columns, reason in (
            (config.num_experts + 1, config.num_experts + 1, "not a multiple of"),
            (config.num_experts, 2 * config.num_experts, "lora_A of .* rows and lora_B"),
        ):
            tensors = {
                f"{name}.lora_A.weight": torch.zeros(rows, hidden),
                f"{name}.lora_B.weight": torch.zeros(inner, columns),
            }
            (tmp_path / "adapter").mkdir(exist_ok=True)
            write_adapter(tmp_path / "adapter", tensors, r=1, lora_alpha=1)
            with pytest.raises(EngineError, match=reason):
                adapters_of(core).load_adapter("broken", str(tmp_path / "adapter"))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("family", "changes", "config"),
    [
        ("llama", _UNTIED, {"target_modules": [*_EMBEDDINGS, "o_proj", "up_proj", "down_proj"]}),
        ("qwen2", {}, {"target_modules": ["o_proj", "down_proj"], "use_dora": True}),
        ("qwen3_moe", {}, {"target_modules": ["k_proj"], "target_parameters": _EXPERTS}),
        ("llama4", {}, {"target_modules": ["k_proj"], "target_parameters": _EXPERTS}),
    ],
    ids=["layers", "dora", "experts", "turned"],
)
def test_ranks_have_their_parts(
    family: str, changes: dict[str, Any], config: dict[str, Any], tmp_path: Path
) -> None:
    model = Model(tmp_path / "model", make(family, tmp_path / "model", changes=changes))
    check(model, peft_model(model, tmp_path, **config), tmp_path, tensor_parallel_size=2)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("family", ["qwen3_moe", "llama4", "gpt_oss"])
def test_ranks_have_adapters_of_their_experts(family: str, tmp_path: Path) -> None:
    model = Model(tmp_path / "model", make(family, tmp_path / "model"))
    config = {"target_modules": ["k_proj"], "target_parameters": _EXPERTS}
    check(model, peft_model(model, tmp_path, **config), tmp_path, **_WHOLE_EXPERTS)
