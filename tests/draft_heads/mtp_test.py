"""MTP layers equal a model of `transformers` that runs the same layer on the same states."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
import torch
from pagemill.models.base import ModelConfigError
from pagemill.runner.build import BuildOptions, build
from pagemill.weights.errors import UnusedTensorError
from pagemill.weights.source import ModelSource
from safetensors.torch import load_file, save_file

from tests.draft_heads.head_run import (
    KINDS,
    TOLERANCE,
    error,
    head_of,
    prompts_for,
    run,
    states_before,
    target_program,
)
from tests.draft_heads.mtp_checkpoints import Checkpoint, make_mtp, renamed
from tests.draft_heads.mtp_layouts import LAYOUTS
from tests.families.gguf_converters import EXAONE_MOE, SIGMOID, Converter
from tests.families.gguf_files import write_gguf
from tests.parity.tiny_models import make

# The architecture of a family in GGUF, other names of its MTP layer, and what else is converted.
GGUF_NAMES: Mapping[str, tuple[str, Mapping[str, str], Converter]] = {
    "exaone_moe": (
        "exaone-moe",
        {
            r"^mtp\.layers\.0": "model.layers.4",
            r"^mtp\.fc": "model.layers.4.eh_proj",
            r"^mtp\.pre_fc_norm_embedding": "model.layers.4.enorm",
            r"^mtp\.pre_fc_norm_hidden": "model.layers.4.hnorm",
            r"^mtp\.norm": "model.layers.4.shared_head.norm",
        },
        EXAONE_MOE,
    ),
    "glm4_moe": ("glm4moe", {}, SIGMOID),
}


@pytest.fixture(name="case", scope="module", params=sorted(LAYOUTS))
def _case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    return make_mtp(request.param, tmp_path_factory.mktemp(request.param))


@pytest.mark.parametrize("kind", KINDS)
def test_the_model_returns_its_final_states(case: Checkpoint, kind: str) -> None:
    prompts = prompts_for(case.vocab_size)
    text = target_program(case.path, "mtp", None, rewrite=kind == "native")
    outputs = run(kind, text, prompts)
    for prompt, states in zip(prompts, outputs["draft_states"], strict=True):
        assert error(states, case.final_states(prompt)) <= TOLERANCE


def test_logits_are_those_without_states(case: Checkpoint) -> None:
    prompts = prompts_for(case.vocab_size)
    plain = build(ModelSource.open(case.path), BuildOptions()).program_text
    text = target_program(case.path, "mtp", None, rewrite=True)
    expected, actual = run("native", plain, prompts), run("native", text, prompts)
    for a, b in zip(actual["logits"], expected["logits"], strict=True):
        assert np.array_equal(a, b)


@pytest.mark.parametrize("kind", KINDS)
def test_the_layer(case: Checkpoint, kind: str) -> None:
    prompts = prompts_for(case.vocab_size)
    built = head_of(case.path, "mtp", None, rewrite=kind == "native")
    states = [states_before(case.final_states(prompt)) for prompt in prompts]
    assert built.draft_states_width == states[0].shape[1]
    assert built.vocab_size == case.vocab_size and not built.draft_token_ids
    outputs = run(kind, built.program_text, prompts, states)
    for index, prompt in enumerate(prompts):
        logits, passed = case.head(prompt, states[index])
        assert error(outputs["logits"][index], logits) <= TOLERANCE
        assert error(outputs["draft_states"][index], passed) <= TOLERANCE


@pytest.mark.parametrize(
    ("family", "config", "prefix"),
    [
        (
            "qwen3_5",
            {"architectures": ["Qwen3_5ForConditionalGeneration"]},
            "model.language_model.",
        ),
        (
            "step3p5_published",
            {"architectures": ["Step3p7ForConditionalGeneration"], "model_type": "step3p7"},
            "model.",
        ),
    ],
    ids=["qwen3_5", "step3p7"],
)
def test_the_layer_of_a_checkpoint_with_images(
    family: str, config: dict[str, object], prefix: str, tmp_path: Path
) -> None:
    """Its language model is nested; the MTP layer may lie beside it."""
    case = make_mtp(family, tmp_path)
    prompts = prompts_for(case.vocab_size)
    states = [states_before(case.final_states(prompt)) for prompt in prompts]
    expected = run("native", head_of(tmp_path, "mtp", None).program_text, prompts, states)
    text = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "text_config": text}))
    tensors = {
        re.sub(r"^model\.", prefix, name): tensor
        for name, tensor in load_file(tmp_path / "model.safetensors").items()
    }
    save_file(tensors, tmp_path / "model.safetensors")
    given = run("native", target_program(tmp_path, "mtp", None, rewrite=True), prompts)
    for prompt, rows in zip(prompts, given["draft_states"], strict=True):
        assert error(rows, case.final_states(prompt)) <= TOLERANCE
    actual = run("native", head_of(tmp_path, "mtp", None).program_text, prompts, states)
    for name in ("logits", "draft_states"):
        for a, b in zip(actual[name], expected[name], strict=True):
            assert np.array_equal(a, b)


@pytest.mark.parametrize("family", GGUF_NAMES)
def test_the_layer_of_a_gguf_file(family: str, tmp_path: Path) -> None:
    """Its blocks are those of the model and the MTP layer."""
    case = make_mtp(family, tmp_path)
    architecture, names, of_model = GGUF_NAMES[family]
    converter = Converter(
        lambda tensors, _: {renamed(names, name): x for name, x in tensors.items()},
        lambda config: {**of_model.settings(config), "nextn_predict_layers": 1},
    )
    path, prompts = tmp_path / "model.gguf", prompts_for(case.vocab_size)
    write_gguf(case.reference, tmp_path, architecture, path, converter)
    states = [states_before(case.final_states(prompt)) for prompt in prompts]
    outputs = run("native", head_of(path, "mtp", None).program_text, prompts, states)
    for index, prompt in enumerate(prompts):
        logits, passed = case.head(prompt, states[index])
        assert error(outputs["logits"][index], logits) <= TOLERANCE
        assert error(outputs["draft_states"][index], passed) <= TOLERANCE


def test_a_tensor_that_the_layer_does_not_use_is_refused(tmp_path: Path) -> None:
    make_mtp("glm4_moe", tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    tensors["model.layers.4.other.weight"] = torch.zeros(3)
    save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(UnusedTensorError, match=r"model\.layers\.4\.other"):
        head_of(tmp_path, "mtp", None)


@pytest.mark.parametrize(
    ("family", "changes", "words"),
    [
        (
            "nemotron_h_experts",
            {"mtp_layers_block_type": ["linear_attention", "moe"]},
            "Mamba layers in it are not supported",
        ),
        ("deepseek_v32", {"mtp_indexer_types": ["shared"]}, "mtp_indexer_types must be full"),
    ],
)
def test_layers_that_are_no_mtp_layer_are_refused(
    family: str, changes: dict[str, object], words: str, tmp_path: Path
) -> None:
    make_mtp(family, tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, **changes}))
    with pytest.raises(ModelConfigError, match=words):
        head_of(tmp_path, "mtp", None)


@pytest.mark.parametrize("family", ["llama", "glm4_moe"])
def test_models_without_such_a_layer_are_refused(family: str, tmp_path: Path) -> None:
    if family == "llama":
        make(family, tmp_path)
        words = "MTP layers of this architecture are not supported"
    else:
        make_mtp(family, tmp_path)
        tensors = load_file(tmp_path / "model.safetensors")
        kept = {k: v for k, v in tensors.items() if not k.startswith("model.layers.4.")}
        save_file(kept, tmp_path / "model.safetensors")
        words = r"the checkpoint has no MTP layer \(model\.layers\.4\.enorm\.weight is missing\)"
    with pytest.raises(ModelConfigError, match=words):
        head_of(tmp_path, "mtp", None)
