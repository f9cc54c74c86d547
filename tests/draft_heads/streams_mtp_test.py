"""The MTP layer of DeepSeek-V4 equals a layer of `transformers` on the same streams."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import PreTrainedModel

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
from tests.families.families import make
from tests.families.family import SIZES
from tests.parity.small_engine import tokens_of

Array = npt.NDArray[np.float32]
Tensors = Mapping[str, torch.Tensor]
LISTS = {
    "layer_types": ["sliding_attention", "heavily_compressed_attention"] * 2
    + ["sliding_attention"],
    "mlp_layer_types": ["hash_moe", "moe", "moe", "moe", "moe"],
}


class _Given(torch.nn.Module):
    """A layer that reads these streams instead of what it is given."""

    def __init__(self, layer: Any, streams: torch.Tensor) -> None:
        super().__init__()
        self.layer, self.streams = layer, streams

    def forward(self, x: torch.Tensor, **inputs: Any) -> torch.Tensor:
        del x
        return self.layer(self.streams, **inputs)


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint of four layers and the MTP layer, which is the fifth of the reference."""

    path: Path
    reference: PreTrainedModel
    tensors: Tensors

    def _streams(self, layers: list[torch.nn.Module], tokens: list[int]) -> torch.Tensor:
        """Those behind `layers`, [T, count, H]."""
        model: Any = copy.deepcopy(self.reference.model)
        model.layers, model.norm = torch.nn.ModuleList(layers), torch.nn.Identity()
        model.hc_head = torch.nn.Identity()
        return model(torch.tensor([tokens]), use_cache=False).last_hidden_state[0]

    @torch.no_grad()
    def final_states(self, tokens: list[int]) -> Array:
        layers = list(copy.deepcopy(self.reference.model.layers))[:4]
        return self._streams(layers, tokens).flatten(1).numpy()

    @torch.no_grad()
    def head(self, tokens: list[int], states: Array) -> tuple[Array, Array]:
        """Logits and next states of the MTP layer, for the states of the tokens before."""
        own, config = self.tensors, self.reference.config
        embed = self.reference.get_input_embeddings().weight[tokens]
        token = self._norm("enorm", embed) @ own["mtp.0.e_proj.weight"].T
        state = torch.tensor(states).unflatten(1, (config.hc_mult, -1))
        state = self._norm("hnorm", state) @ own["mtp.0.h_proj.weight"].T
        layer = copy.deepcopy(self.reference.model.layers[4])
        x = self._streams([_Given(layer, (token[:, None] + state)[None])], tokens)
        joined: Any = copy.deepcopy(self.reference.model.hc_head)
        for part in ("fn", "base", "scale"):
            getattr(joined, f"hc_{part}").copy_(own[f"mtp.0.hc_head_{part}"])
        logits = self.reference.lm_head(self._norm("norm", joined(x[None])[0]))
        return logits.numpy(), x.flatten(1).numpy()

    def _norm(self, name: str, x: torch.Tensor) -> torch.Tensor:
        eps, scale = SIZES["rms_norm_eps"], self.tensors[f"mtp.0.{name}.weight"]
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * scale


def _make(path: Path) -> Checkpoint:
    reference = make("deepseek_v4", path, changes={"num_hidden_layers": 5, **LISTS})
    config = json.loads((path / "config.json").read_text())
    config |= {"num_hidden_layers": 4} | {key: config[key][:4] for key in LISTS}
    (path / "config.json").write_text(json.dumps(config))
    tensors = {
        name.replace("model.layers.4.", "mtp.0.").replace(
            "mtp.0.attn.norm", "mtp.0.attn.kv_norm"
        ): x
        for name, x in load_file(path / "model.safetensors").items()
    }
    hidden, count = config["hidden_size"], config["hc_mult"]
    for name in ("enorm", "hnorm", "norm"):
        tensors[f"mtp.0.{name}.weight"] = 1 + 0.3 * torch.randn(hidden)
    for name in ("e_proj", "h_proj"):
        tensors[f"mtp.0.{name}.weight"] = torch.randn(hidden, hidden) / hidden**0.5
    tensors["mtp.0.hc_head_fn"] = torch.randn(count, count * hidden) / (count * hidden) ** 0.5
    tensors["mtp.0.hc_head_base"] = 0.3 * torch.randn(count)
    tensors["mtp.0.hc_head_scale"] = 1 + 0.3 * torch.randn(1)
    save_file({k: v.contiguous() for k, v in tensors.items()}, path / "model.safetensors")
    return Checkpoint(path, reference, tensors)


@pytest.fixture(name="case", scope="module")
def _case(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    return _make(tmp_path_factory.mktemp("deepseek_v4"))


@pytest.mark.parametrize("kind", KINDS)
def test_the_model_returns_its_streams(case: Checkpoint, kind: str) -> None:
    prompts = prompts_for(SIZES["vocab_size"])
    text = target_program(case.path, "mtp", None, rewrite=kind == "native")
    for prompt, states in zip(prompts, run(kind, text, prompts)["draft_states"], strict=True):
        assert error(states, case.final_states(prompt)) <= TOLERANCE


@pytest.mark.parametrize("kind", KINDS)
def test_the_layer(case: Checkpoint, kind: str) -> None:
    prompts = prompts_for(SIZES["vocab_size"])
    built = head_of(case.path, "mtp", None, rewrite=kind == "native")
    states = [states_before(case.final_states(prompt)) for prompt in prompts]
    assert built.draft_states_width == states[0].shape[1]
    outputs = run(kind, built.program_text, prompts, states)
    for index, prompt in enumerate(prompts):
        logits, passed = case.head(prompt, states[index])
        assert error(outputs["logits"][index], logits) <= TOLERANCE
        assert error(outputs["draft_states"][index], passed) <= TOLERANCE


def test_greedy_tokens_are_those_without(case: Checkpoint) -> None:
    options: dict[str, Any] = {
        "temperatures": (0.0,),
        "max_num_batched_tokens": 32,
        "kv_cache_dtype": "f32",
        "activation_dtype": "f32",
    }
    expected, _ = tokens_of(case.path, **options)
    drafts = {"method": "mtp", "num_speculative_tokens": 3}
    tokens, stats = tokens_of(case.path, speculative_config=drafts, **options)
    assert tokens == expected
    assert stats.draft_tokens > 0
