"""Tiny Medusa heads and MLP speculators of random weights, and what they compute, in torch."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from safetensors.torch import save_file
from torch.nn import functional

Array = npt.NDArray[np.float32]
Tensors = dict[str, torch.Tensor]

HEADS = 3


@dataclass(frozen=True)
class JointHeads:
    """Heads for a target whose vocabulary projection is `projection`. Tensors have the names that
    heads read."""

    path: Path
    tensors: Tensors
    projection: torch.Tensor
    config: Mapping[str, Any]

    @torch.no_grad()
    def medusa(self, states: Array) -> list[Array]:
        """The logits of each head for some states."""
        found: list[Array] = []
        for head in range(HEADS):
            x = torch.tensor(states)
            layer = 0
            while (name := f"blocks.{head}.layers.{layer}") + ".weight" in self.tensors:
                bias = self.tensors.get(f"{name}.bias")
                x = x + functional.silu(functional.linear(x, self.tensors[f"{name}.weight"], bias))
                layer += 1
            shared = self.tensors.get("lm_head.weight", self.projection)
            found.append((x @ self.tensors.get(f"lm_heads.{head}.weight", shared).T).numpy())
        return found

    @torch.no_grad()
    def mlp_speculator(self, tokens: list[int], states: Array) -> list[Array]:
        """The logits of each head behind `tokens`, each with the state before it."""
        inner = self.config["inner_dim"] or self.config["emb_dim"]
        state_weight = 0.5 ** (0.5 / HEADS)
        emb_weight = math.sqrt((1 - state_weight**2) * (inner / 2))
        x, token = torch.tensor(states), torch.tensor(tokens)
        if self.config["scale_input"]:
            x = functional.rms_norm(x, x.shape[-1:], eps=1e-6) / math.sqrt(2)
        found: list[Array] = []
        for head in range(HEADS):
            x = x @ self._of(f"proj.{head}.weight").T
            x = x + emb_weight / state_weight * self._of(f"emb.{head}.weight")[token]
            x = functional.rms_norm(x, x.shape[-1:], self._of(f"ln.{head}.weight"), 1e-6)
            x = functional.gelu(x + self._of(f"ln.{head}.bias"))
            logits = x @ self._of(f"head.{head}.weight").T
            found.append(logits.numpy())
            token = logits.argmax(-1)
        return found

    def _of(self, name: str) -> torch.Tensor:
        """The tensor, or that of the first head if all have one."""
        kind, head, part = name.split(".")
        while f"{kind}.{head}.{part}" not in self.tensors:
            head = str(int(head) - 1)
        return self.tensors[f"{kind}.{head}.{part}"]


def make_medusa(path: Path, target: Any, *, layout: str, projection: torch.Tensor) -> JointHeads:
    """Heads for a target with this configuration, in the `layout` of the paper's "authors", whose
    layers have biases, or "vllm"; "shared": with one projection, "of_the_target": with none."""
    torch.manual_seed(9)
    hidden, vocab = target.hidden_size, target.vocab_size
    tensors: Tensors = {}
    for head in range(HEADS):
        for layer in range(2):
            tensors[f"blocks.{head}.layers.{layer}.weight"] = torch.randn(hidden, hidden) / 8
            if layout == "authors":
                tensors[f"blocks.{head}.layers.{layer}.bias"] = torch.randn(hidden) / 8
        if layout in ("authors", "vllm"):
            tensors[f"lm_heads.{head}.weight"] = torch.randn(vocab, hidden) / 8
    if layout == "shared":
        tensors["lm_head.weight"] = torch.randn(vocab, hidden) / 8
    if layout == "authors":
        # Published configurations state fewer heads.
        config = {"medusa_num_heads": 2, "medusa_num_layers": 2, "base_model_name_or_path": "o/m"}
        _save(path, config, {_name_of_authors(name): tensor for name, tensor in tensors.items()})
    else:
        config = {"model_type": "medusa", "num_heads": HEADS, "hidden_size": hidden}
        _save(path, {**config, "vocab_size": vocab}, tensors)
    return JointHeads(path, tensors, projection, config)


def _name_of_authors(name: str) -> str:
    kind, head, *rest = name.split(".")
    return f"{head}.2.weight" if kind == "lm_heads" else f"{head}.{rest[1]}.linear.{rest[2]}"


def make_mlp_speculator(
    path: Path, target: Any, *, inner: int = 0, tied: bool = False, scales: bool = False
) -> JointHeads:
    """A speculator for a target with this configuration, with heads of `inner` numbers, 0: those of
    the target's states; with the same weights for all heads but the first projection if `tied`."""
    torch.manual_seed(10)
    hidden, vocab, size = target.hidden_size, target.vocab_size, inner or target.hidden_size
    tensors: Tensors = {}
    for head in range(1 if tied else HEADS):
        tensors[f"emb.{head}.weight"] = torch.randn(vocab, size)
        tensors[f"ln.{head}.weight"] = 1 + torch.randn(size) / 8
        tensors[f"ln.{head}.bias"] = torch.randn(size) / 8
        tensors[f"head.{head}.weight"] = torch.randn(vocab, size) / 8
    for head in range(2 if tied else HEADS):
        width = hidden if head == 0 else size
        tensors[f"proj.{head}.weight"] = torch.randn(size, width) / 8
    config = {
        "model_type": "mlp_speculator",
        "n_predict": HEADS,
        "emb_dim": hidden,
        "inner_dim": inner,
        "vocab_size": vocab,
        "tie_weights": tied,
        "scale_input": scales,
    }
    _save(path, config, {f"speculator.{name}": tensor for name, tensor in tensors.items()})
    return JointHeads(path, tensors, torch.empty(0), config)


def _save(path: Path, config: Mapping[str, Any], tensors: Tensors) -> None:
    path.mkdir(exist_ok=True)
    (path / "config.json").write_text(json.dumps(config))
    save_file({k: v.contiguous() for k, v in tensors.items()}, path / "model.safetensors")
