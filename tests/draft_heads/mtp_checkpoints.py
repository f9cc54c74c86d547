"""Tiny checkpoints with an MTP layer: models of tests/families whose last layer becomes it."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from safetensors.torch import load_file, save_file
from transformers import PreTrainedModel

from tests.families.families import make

Array = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Layout:
    """How checkpoints of a family name their MTP layer. `layer` is the prefix of the tensors of a
    layer; `offset` is added to the weights of norms; `lists` are of the configuration."""

    layer: str
    embedding_norm: str
    state_norm: str
    projection: str
    norm: str
    state_first: bool = False
    passes_normalized: bool = False
    offset: float = 0.0
    changes: Mapping[str, Any] = field(default_factory=dict[str, Any])
    own: Mapping[str, str] = field(default_factory=dict[str, str])


_BEHIND = Layout(
    "model.layers.4",
    "model.layers.4.enorm",
    "model.layers.4.hnorm",
    "model.layers.4.eh_proj",
    "model.layers.4.shared_head.norm",
)
_OWN = {"embed": "model.layers.4.embed_tokens", "head": "model.layers.4.shared_head.head"}
_SPARSE = {"mlp_layer_types": ["dense", "sparse", "sparse", "dense", "sparse"]}
_QWEN = Layout(
    "mtp.layers.0",
    "mtp.pre_fc_norm_embedding",
    "mtp.pre_fc_norm_hidden",
    "mtp.fc",
    "mtp.norm",
    passes_normalized=True,
    offset=1.0,
    changes={"layer_types": ["full_attention", "linear_attention"] * 2 + ["full_attention"]},
)
LAYOUTS: Mapping[str, Layout] = {
    "deepseek_v3": Layout(**{**vars(_BEHIND), "own": _OWN}),
    "deepseek_v32": Layout(
        **{**vars(_BEHIND), "changes": {"mlp_layer_types": ["dense"] + ["sparse"] * 4}}
    ),
    "glm4_moe": _BEHIND,
    "glm4_moe_lite": Layout(**{**vars(_BEHIND), "own": _OWN, "changes": _SPARSE}),
    "mimo": Layout(
        "model.mtp_layers.0",
        "model.mtp_layers.0.token_layernorm",
        "model.mtp_layers.0.hidden_layernorm",
        "model.mtp_layers.0.input_proj",
        "model.mtp_layers.0.final_layernorm",
        state_first=True,
        passes_normalized=True,
    ),
    "qwen3_5": _QWEN,
    "qwen3_next": _QWEN,
}


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint of four layers and an MTP layer, and the model of `transformers` whose fifth
    layer that is."""

    path: Path
    layout: Layout
    reference: PreTrainedModel
    tensors: Mapping[str, torch.Tensor]

    @property
    def vocab_size(self) -> int:
        return self.reference.config.vocab_size

    @torch.no_grad()
    def final_states(self, tokens: list[int]) -> Array:
        """The model's final hidden states, normalized."""
        model = copy.deepcopy(self.reference.model)
        _keep_layers(model, slice(0, 4))
        return model(torch.tensor([tokens]), use_cache=False).last_hidden_state[0].numpy()

    @torch.no_grad()
    def head(self, tokens: list[int], states: Array) -> tuple[Array, Array]:
        """Logits and next states of the MTP layer, for the states of the tokens before."""
        layout, own = self.layout, self.layout.own
        embed, head = self.reference.model.embed_tokens.weight, self.reference.lm_head.weight
        embed = self.tensors[f"{own['embed']}.weight"] if "embed" in own else embed
        head = self.tensors[f"{own['head']}.weight"] if "head" in own else head
        token = self._norm(layout.embedding_norm, embed[tokens])
        state = self._norm(layout.state_norm, torch.tensor(states))
        pair = (state, token) if layout.state_first else (token, state)
        x = torch.cat(pair, -1) @ self.tensors[f"{layout.projection}.weight"].T
        model = copy.deepcopy(self.reference.model)
        _keep_layers(model, slice(4, 5))
        model.norm = torch.nn.Identity()
        x = model(inputs_embeds=x[None], use_cache=False).last_hidden_state[0]
        normalized = self._norm(layout.norm, x)
        passed = normalized if layout.passes_normalized else x
        return (normalized @ head.T).numpy(), passed.numpy()

    def _norm(self, name: str, x: torch.Tensor) -> torch.Tensor:
        eps = self.reference.config.rms_norm_eps
        scale = self.tensors[f"{name}.weight"] + self.layout.offset
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * scale


def _keep_layers(model: Any, which: slice) -> None:
    model.layers = torch.nn.ModuleList(list(model.layers)[which])
    model.config.num_hidden_layers = len(model.layers)
    if getattr(model.config, "layer_types", None):
        model.config.layer_types = model.config.layer_types[which]


def make_mtp(family: str, path: Path, **changes: Any) -> Checkpoint:
    """Writes the checkpoint, with `changes` of the family's configuration."""
    layout = LAYOUTS[family]
    reference = make(family, path, changes={"num_hidden_layers": 5, **layout.changes, **changes})
    config = json.loads((path / "config.json").read_text())
    config |= {"num_hidden_layers": 4, "num_nextn_predict_layers": 1}
    config |= {key: config[key][:4] for key in layout.changes}
    (path / "config.json").write_text(json.dumps(config))
    tensors = {
        name.replace("model.layers.4.", f"{layout.layer}."): tensor
        for name, tensor in load_file(path / "model.safetensors").items()
        if "mtp" not in name
    }
    hidden, vocab = config["hidden_size"], config["vocab_size"]
    for name in (layout.embedding_norm, layout.state_norm, layout.norm):
        tensors[f"{name}.weight"] = 1 - layout.offset + 0.3 * torch.randn(hidden)
    tensors[f"{layout.projection}.weight"] = torch.randn(hidden, 2 * hidden) / hidden**0.5
    for name in layout.own.values():
        tensors[f"{name}.weight"] = torch.randn(vocab, hidden) / hidden**0.5
    save_file(tensors, path / "model.safetensors")
    return Checkpoint(path, layout, reference, tensors)
