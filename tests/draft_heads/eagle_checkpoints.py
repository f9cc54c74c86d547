"""Tiny EAGLE and EAGLE-3 heads of random weights, and what they compute, in torch."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from safetensors.torch import save_file
from transformers import LlamaConfig, LlamaModel

Array = npt.NDArray[np.float32]
Tensors = dict[str, torch.Tensor]

DRAFT_VOCAB = 61


@dataclass(frozen=True)
class Head:
    """A head for targets with states of `target_size` numbers. `config` is LlamaConfig's."""

    path: Path
    config: LlamaConfig
    tensors: Tensors
    target_size: int

    def rms_norm(self, name: str, x: torch.Tensor) -> torch.Tensor:
        scale = self.tensors[f"{name}.weight"]
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.config.rms_norm_eps) * scale

    @torch.no_grad()
    def layers(self, x: torch.Tensor, *, first: int) -> torch.Tensor:
        """Llama's layers from `first` on, on [T, H]."""
        model = LlamaModel(self.config).eval()
        own = {k: v for k, v in self.tensors.items() if k.startswith("layers.")}
        ones = {"layers.0.input_layernorm.weight": torch.ones(self.config.hidden_size)}
        if first:
            own = {k: v for k, v in own.items() if not k.startswith("layers.0.")}
        model.load_state_dict({**ones, **own}, strict=False)
        model.norm = torch.nn.Identity()
        if first == 0:  # nothing is normalized in front of the first attention
            model.layers[0].input_layernorm = torch.nn.Identity()
        model.layers = model.layers[first:]
        model.config.num_hidden_layers = len(model.layers)
        return model(inputs_embeds=x[None], use_cache=False).last_hidden_state[0]

    @torch.no_grad()
    def eagle(self, tokens: list[int], states: Array, embed: torch.Tensor) -> Array:
        """The next states of an EAGLE head, of which the target's head makes logits."""
        embed = self.tensors.get("embed_tokens.weight", embed)
        x = torch.cat([embed[tokens], torch.tensor(states)], -1) @ self.tensors["fc.weight"].T
        return self.layers(x + self.tensors["fc.bias"], first=0).numpy()

    @torch.no_grad()
    def eagle3(self, tokens: list[int], states: Array, embed: torch.Tensor) -> tuple[Array, Array]:
        """Logits and next states of an EAGLE-3 head."""
        embed = self.tensors.get("embed_tokens.weight", embed)
        state = torch.tensor(states)
        normalized = self.rms_norm("layers.0.hidden_norm", state)
        token = self.rms_norm("layers.0.input_layernorm", embed[tokens])
        residual = normalized if self.config.norm_before_residual else state
        x = residual + self._attention(torch.cat([token, normalized], -1))
        y = self.rms_norm("layers.0.post_attention_layernorm", x)
        gate, up, down = (
            self.tensors[f"layers.0.mlp.{name}_proj.weight"] for name in ("gate", "up", "down")
        )
        x = x + (torch.nn.functional.silu(y @ gate.T) * (y @ up.T)) @ down.T
        logits = self.rms_norm("norm", x) @ self.tensors["lm_head.weight"].T
        return logits.numpy(), x.numpy()

    def _attention(self, x: torch.Tensor) -> torch.Tensor:
        """Causal attention with rotary positions, [T, 2 H] -> [T, H]."""
        dim, length = self.config.head_dim, len(x)
        q, k, v = (
            (x @ self.tensors[f"layers.0.self_attn.{name}_proj.weight"].T).view(length, -1, dim)
            for name in "qkv"
        )
        angles = torch.arange(length)[:, None] / 1e4 ** (torch.arange(0, dim, 2) / dim)
        cos, sin = (part[:, None] for part in (angles.cos(), angles.sin()))

        def rotate(y: torch.Tensor) -> torch.Tensor:
            a, b = y[..., : dim // 2], y[..., dim // 2 :]
            return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)

        q, k = rotate(q).transpose(0, 1), rotate(k).transpose(0, 1)
        group = len(q) // len(k)
        k, v = k.repeat_interleave(group, 0), v.transpose(0, 1).repeat_interleave(group, 0)
        scores = q @ k.transpose(1, 2) / dim**0.5
        future = torch.ones(length, length, dtype=torch.bool).triu(1)
        attended = scores.masked_fill(future, -torch.inf).softmax(-1) @ v
        attended = attended.transpose(0, 1).reshape(length, -1)
        return attended @ self.tensors["layers.0.self_attn.o_proj.weight"].T


def _config(target: Any, **changes: Any) -> LlamaConfig:
    return LlamaConfig(
        vocab_size=target.vocab_size,
        hidden_size=target.hidden_size,
        intermediate_size=104,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=20,
        max_position_embeddings=4096,
        rms_norm_eps=0.02,
        attn_implementation="eager",
        **changes,
    )


def _random(shapes: dict[str, tuple[int, ...]]) -> Tensors:
    """Matrices keep the size of what they multiply; norms are around 1."""
    made: Tensors = {}
    for name, shape in shapes.items():
        noise = torch.randn(shape)
        is_norm = "norm" in name and len(shape) == 1
        made[name] = 1 + 0.3 * noise if is_norm else noise / shape[-1] ** 0.5
    return made


def _layer(config: LlamaConfig, name: str, width: int) -> dict[str, tuple[int, ...]]:
    hidden, dim, size = config.hidden_size, config.head_dim, config.intermediate_size
    q, kv = config.num_attention_heads * dim, config.num_key_value_heads * dim
    return {
        f"{name}.self_attn.q_proj.weight": (q, width),
        f"{name}.self_attn.k_proj.weight": (kv, width),
        f"{name}.self_attn.v_proj.weight": (kv, width),
        f"{name}.self_attn.o_proj.weight": (hidden, q),
        f"{name}.post_attention_layernorm.weight": (hidden,),
        f"{name}.mlp.gate_proj.weight": (size, hidden),
        f"{name}.mlp.up_proj.weight": (size, hidden),
        f"{name}.mlp.down_proj.weight": (hidden, size),
    }


def make_eagle(path: Path, target: Any, *, embeds: bool = False) -> Head:
    """A head of two layers for a target with this configuration; with embeddings of its own if it
    `embeds`."""
    torch.manual_seed(7)
    config = _config(target, num_hidden_layers=2)
    hidden = config.hidden_size
    shapes = _layer(config, "layers.0", hidden) | _layer(config, "layers.1", hidden)
    shapes |= {"fc.weight": (hidden, 2 * hidden), "fc.bias": (hidden,)}
    shapes["layers.1.input_layernorm.weight"] = (hidden,)
    if embeds:
        shapes["embed_tokens.weight"] = (config.vocab_size, hidden)
    tensors = _random(shapes)
    _save(path, config.to_dict(), {f"model.{k}" if embeds else k: v for k, v in tensors.items()})
    return Head(path, config, tensors, hidden)


def make_eagle3(
    path: Path, target: Any, *, speculators: bool = False, hidden_size: int | None = None
) -> Head:
    """A head with a vocabulary of its own for a target with this configuration, as it is published
    or by the speculators library; with states of another size if `hidden_size` is given."""
    torch.manual_seed(8)
    config = _config(target, num_hidden_layers=1, norm_before_residual=speculators)
    config.hidden_size = hidden = hidden_size or target.hidden_size
    shapes = _layer(config, "layers.0", 2 * hidden)
    shapes |= {f"layers.0.{name}.weight": (hidden,) for name in ("input_layernorm", "hidden_norm")}
    shapes |= {"fc.weight": (hidden, 3 * target.hidden_size), "norm.weight": (hidden,)}
    shapes["lm_head.weight"] = (DRAFT_VOCAB, hidden)
    if hidden_size is not None or speculators:
        shapes["embed_tokens.weight"] = (config.vocab_size, hidden)
    tensors = _random(shapes)
    ids = torch.randperm(config.vocab_size)[:DRAFT_VOCAB].sort().values
    known = torch.zeros(config.vocab_size, dtype=torch.bool)
    known[ids] = True
    stored = {**tensors, "d2t": ids - torch.arange(DRAFT_VOCAB), "t2d": known}
    fields = {"draft_vocab_size": DRAFT_VOCAB, "target_hidden_size": target.hidden_size}
    if speculators:
        layer = config.to_dict()
        layer.pop("norm_before_residual")
        nested = {
            "speculators_model_type": "eagle3",
            "architectures": ["Eagle3Speculator"],
            "transformer_layer_config": layer,
            "norm_before_residual": True,
        }
        _save(path, {**nested, **fields}, stored)
    else:
        stored = {k.replace("layers.0.", "midlayer."): v for k, v in stored.items()}
        _save(path, {**config.to_dict(), **fields}, stored)
    return Head(path, config, {**tensors, "ids": ids}, target.hidden_size)


def _save(path: Path, config: dict[str, Any], tensors: Tensors) -> None:
    path.mkdir(exist_ok=True)
    config.pop("torch_dtype", None)
    (path / "config.json").write_text(json.dumps(config))
    save_file({k: v.contiguous() for k, v in tensors.items()}, path / "model.safetensors")
