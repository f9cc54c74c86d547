"""Tiny checkpoints with an MTP layer: models of tests/families whose last layer becomes it."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from safetensors.torch import load_file, save_file
from transformers import PreTrainedModel

from tests.draft_heads.mtp_layouts import LAYOUTS, Layout
from tests.families.families import make
from tests.families.family import SIZES

Array = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint of a model and an MTP layer, and the model of `transformers` whose last layers
    that is."""

    path: Path
    layout: Layout
    reference: PreTrainedModel
    tensors: Mapping[str, torch.Tensor]

    @property
    def vocab_size(self) -> int:
        return self.reference.config.vocab_size

    @torch.no_grad()
    def final_states(self, tokens: list[int]) -> Array:
        """The final hidden states of the model that its layer reads."""
        model = self._decoder(slice(0, self.layout.layers))
        if not self.layout.reads_normalized:
            model.norm = torch.nn.Identity()
        return model(torch.tensor([tokens]), use_cache=False).last_hidden_state[0].numpy()

    @torch.no_grad()
    def head(self, tokens: list[int], states: Array) -> tuple[Array, Array]:
        """Logits and next states of the MTP layer, for the states of the tokens before."""
        layout, own, model = self.layout, self.layout.own, self.reference
        embed, head = model.get_input_embeddings().weight, model.get_output_embeddings()
        embed = self.tensors[f"{own['embed']}.weight"] if "embed" in own else embed
        token = self._norm(layout.embedding_norm, embed[tokens])
        state = self._norm(layout.state_norm, torch.tensor(states))
        pair = (state, token) if layout.state_first else (token, state)
        x = torch.cat(pair, -1) @ self.tensors[f"{layout.projection}.weight"].T
        decoder = self._decoder(slice(layout.layers, None))
        decoder.norm = decoder.norm_f = torch.nn.Identity()
        if layout.count == "num_layers":
            decoder.layers = torch.nn.ModuleList(map(_FirstHalf, decoder.layers))
        x = decoder(inputs_embeds=x[None], use_cache=False).last_hidden_state[0]
        normalized = self._norm(layout.norm, x)
        passed = normalized if layout.passes_normalized else x
        if "head" in own:
            logits = normalized @ self.tensors[f"{own['head']}.weight"].T
        else:
            logits = head(normalized)
        return logits.numpy(), passed.numpy()

    def _decoder(self, which: slice) -> Any:
        """The reference with these layers alone."""
        model = copy.deepcopy(self.reference.model)
        model.layers = torch.nn.ModuleList(list(model.layers)[which])
        setattr(model.config, self.layout.count, len(model.layers))
        if getattr(model.config, "layer_types", None):
            model.config.layer_types = model.config.layer_types[which]
        return model

    def _norm(self, name: str, x: torch.Tensor) -> torch.Tensor:
        eps = SIZES["rms_norm_eps"]
        scale = self.tensors[f"{name}.weight"] + self.layout.offset
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * scale


class _FirstHalf(torch.nn.Module):
    """The first attention and feed-forward layer of a layer of LongCat-Flash."""

    def __init__(self, layer: Any) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: torch.Tensor, **inputs: Any) -> torch.Tensor:
        layer = self.layer
        x = x + layer.self_attn[0](hidden_states=layer.input_layernorm[0](x), **inputs)[0]
        return x + layer.mlps[0](layer.post_attention_layernorm[0](x))


def make_mtp(family: str, path: Path, **changes: Any) -> Checkpoint:
    """Writes the checkpoint, with `changes` of the family's configuration."""
    layout = LAYOUTS[family]
    count = {layout.count: layout.layers + layout.depth}
    reference = make(family, path, changes={**count, **layout.changes, **changes})
    config = json.loads((path / "config.json").read_text())
    config |= {layout.count: layout.layers, "num_nextn_predict_layers": 1, **layout.stated}
    for key in layout.changes:
        if isinstance(config.get(key), list) and not layout.list_all:
            config[key] = config[key][: layout.layers]
    (path / "config.json").write_text(json.dumps(config))
    tensors: dict[str, torch.Tensor] = {}
    for name, tensor in load_file(path / "model.safetensors").items():
        own = renamed(layout.names, name)
        if "mtp" not in name and not re.search(layout.dropped, own):
            tensors[own] = tensor
    hidden, vocab = config["hidden_size"], config["vocab_size"]
    for name in (layout.embedding_norm, layout.state_norm, layout.norm):
        if name != "model.norm":
            tensors[f"{name}.weight"] = 1 - layout.offset + 0.3 * torch.randn(hidden)
    tensors[f"{layout.projection}.weight"] = torch.randn(hidden, 2 * hidden) / hidden**0.5
    for name in layout.own.values():
        tensors[f"{name}.weight"] = torch.randn(vocab, hidden) / hidden**0.5
    save_file(tensors, path / "model.safetensors")
    return Checkpoint(path, layout, reference, tensors)


def renamed(names: Mapping[str, str], name: str) -> str:
    """`name` with the patterns of `names` replaced."""
    for pattern, replacement in names.items():
        name = re.sub(pattern, replacement, name)
    return name
