"""Tiny DFlash drafters of random weights, and what they compute, in torch."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from safetensors.torch import save_file

Array = npt.NDArray[np.float32]

LAYER_IDS = [1, 4, 2]
MASK = 17
EPS, THETA = 0.02, 1e5
HEADS, KV_HEADS, DIM = 4, 2, 20
WINDOW = 6


@dataclass(frozen=True)
class Drafter:
    """A drafter whose layer i has a window of `windows[i]` tokens, 0 for none, and is causal if
    `causal[i]`."""

    path: Path
    config: dict[str, Any]
    tensors: dict[str, torch.Tensor]
    windows: tuple[int, ...]
    causal: tuple[bool, ...]

    def norm(self, name: str, x: torch.Tensor) -> torch.Tensor:
        x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + EPS)
        return x * self.tensors[f"{name}.weight"]

    def linear(self, name: str, x: torch.Tensor) -> torch.Tensor:
        return x @ self.tensors[f"{name}.weight"].T

    @torch.no_grad()
    def joined(self, states: Sequence[Array]) -> Array:
        """Of the target's states behind the layers that it reads."""
        return self.linear("fc", torch.cat([torch.tensor(state) for state in states], -1)).numpy()

    @torch.no_grad()
    def block(self, states: Array, block: Sequence[int], embed: torch.Tensor) -> torch.Tensor:
        """The final rows [B, H] of a `block` of the last known token and masks, behind tokens that
        have these joined `states`."""
        features = self.norm("hidden_norm", torch.tensor(states))
        x = embed[list(block)]
        for layer in range(len(self.windows)):
            name = f"layers.{layer}"
            y = self.norm(f"{name}.input_layernorm", x)
            x = x + self._attention(layer, y, torch.cat([features, y]))
            y = self.norm(f"{name}.post_attention_layernorm", x)
            gate = torch.nn.functional.silu(self.linear(f"{name}.mlp.gate_proj", y))
            up = self.linear(f"{name}.mlp.up_proj", y)
            x = x + self.linear(f"{name}.mlp.down_proj", gate * up)
        return self.norm("norm", x)

    def _attention(self, layer: int, x: torch.Tensor, context: torch.Tensor) -> torch.Tensor:
        """Queries of the last rows x [B, H] of `context` [T, H]."""
        name, count = f"layers.{layer}.self_attn", len(context)
        positions = torch.arange(count)
        first = count - len(x)
        q = self.linear(f"{name}.q_proj", x).view(-1, HEADS, DIM)
        k = self.linear(f"{name}.k_proj", context).view(-1, KV_HEADS, DIM)
        v = self.linear(f"{name}.v_proj", context).view(-1, KV_HEADS, DIM)
        q = _rotate(self.norm(f"{name}.q_norm", q), positions[first:]).transpose(0, 1)
        k = _rotate(self.norm(f"{name}.k_norm", k), positions).transpose(0, 1)
        group = HEADS // KV_HEADS
        k, v = k.repeat_interleave(group, 0), v.transpose(0, 1).repeat_interleave(group, 0)
        distance = positions[first:, None] - positions
        hidden = torch.zeros_like(distance, dtype=torch.bool)
        if self.causal[layer]:
            hidden |= distance < 0
        if self.windows[layer]:
            hidden |= distance >= self.windows[layer]
        scores = (q @ k.transpose(1, 2) / DIM**0.5).masked_fill(hidden, -torch.inf)
        attended = (scores.softmax(-1) @ v).transpose(0, 1).reshape(len(x), -1)
        return self.linear(f"{name}.o_proj", attended)


def _rotate(x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    """x [T, heads, DIM], pairs of elements half a head apart."""
    angles = positions[:, None] / THETA ** (torch.arange(0, DIM, 2) / DIM)
    cos, sin = (part[:, None] for part in (angles.cos(), angles.sin()))
    a, b = x[..., : DIM // 2], x[..., DIM // 2 :]
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


def make_dflash(
    path: Path,
    target: Any,
    *,
    windows: tuple[int, ...] = (0, 0),
    causal: bool | None = None,
    mask: int = MASK,
    **changes: Any,
) -> Drafter:
    """A drafter for a target with this configuration, with a layer for each of `windows`, all
    `causal` or not if that is stated; `mask` stands for drafts, and `changes` are further keys of
    its configuration."""
    torch.manual_seed(11)
    hidden, size = target.hidden_size, 104
    shapes: dict[str, tuple[int, ...]] = {
        "fc": (hidden, len(LAYER_IDS) * hidden),
        "hidden_norm": (hidden,),
        "norm": (hidden,),
    }
    for layer in range(len(windows)):
        name = f"layers.{layer}"
        shapes |= {
            f"{name}.input_layernorm": (hidden,),
            f"{name}.post_attention_layernorm": (hidden,),
            f"{name}.self_attn.q_proj": (HEADS * DIM, hidden),
            f"{name}.self_attn.k_proj": (KV_HEADS * DIM, hidden),
            f"{name}.self_attn.v_proj": (KV_HEADS * DIM, hidden),
            f"{name}.self_attn.o_proj": (hidden, HEADS * DIM),
            f"{name}.self_attn.q_norm": (DIM,),
            f"{name}.self_attn.k_norm": (DIM,),
            f"{name}.mlp.gate_proj": (size, hidden),
            f"{name}.mlp.up_proj": (size, hidden),
            f"{name}.mlp.down_proj": (hidden, size),
        }
    tensors = {
        f"{name}.weight": 1 + 0.3 * torch.randn(shape)
        if len(shape) == 1
        else torch.randn(shape) / shape[-1] ** 0.5
        for name, shape in shapes.items()
    }
    nested: dict[str, Any] = {"mask_token_id": mask, "target_layer_ids": LAYER_IDS}
    if causal is not None:
        nested["causal"] = causal
    config = {
        "architectures": ["DFlashDraftModel"],
        "model_type": "qwen3",
        "hidden_size": hidden,
        "vocab_size": target.vocab_size,
        "intermediate_size": size,
        "num_hidden_layers": len(windows),
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": DIM,
        "hidden_act": "silu",
        "rms_norm_eps": EPS,
        "rope_theta": THETA,
        "max_position_embeddings": 4096,
        "block_size": 8,
        "dflash_config": nested,
        **changes,
    }
    if any(windows):
        kinds = ["sliding_attention" if window else "full_attention" for window in windows]
        config |= {"layer_types": kinds, "sliding_window": max(windows)}
    path.mkdir(exist_ok=True)
    (path / "config.json").write_text(json.dumps(config))
    save_file({k: v.contiguous() for k, v in tensors.items()}, path / "model.safetensors")
    is_causal = tuple(bool(window) if causal is None else causal for window in windows)
    return Drafter(path, config, tensors, windows, is_causal)
