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
from transformers import (
    AutoModel,
    DeepseekV3Config,
    LlamaConfig,
    PretrainedConfig,
    Qwen3Config,
)
from transformers.models.deepseek_v3 import modeling_deepseek_v3 as deepseek

Array = npt.NDArray[np.float32]
Tensors = dict[str, torch.Tensor]

DRAFT_VOCAB = 61


@dataclass(frozen=True)
class Head:
    """A head for targets with states of `target_size` numbers. `config` is that of `_FAMILIES`."""

    path: Path
    config: PretrainedConfig
    tensors: Tensors
    target_size: int

    def rms_norm(self, name: str, x: torch.Tensor) -> torch.Tensor:
        scale = self.tensors[f"{name}.weight"]
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.config.rms_norm_eps) * scale

    @torch.no_grad()
    def layers(self, x: torch.Tensor, *, first: int) -> torch.Tensor:
        """The layers from `first` on, on [T, H]."""
        model = AutoModel.from_config(self.config, attn_implementation="eager").eval()
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
    def joined(self, states: list[Array]) -> Array:
        """What an EAGLE-3 head reads, of the target's `states` in three places."""
        parts = [torch.tensor(state) for state in states]
        if "fc_norm.0.weight" in self.tensors:
            parts = [self.rms_norm(f"fc_norm.{i}", part) for i, part in enumerate(parts)]
        x = torch.cat(parts, -1)
        if "input_norm.weight" in self.tensors:
            x = self.rms_norm("input_norm", x)
        return (x @ self.tensors["fc.weight"].T).numpy()

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
        normalized = self.rms_norm("norm", x)
        passed = normalized if getattr(self.config, "norm_output", False) else x
        return (normalized @ self.tensors["lm_head.weight"].T).numpy(), passed.numpy()

    def _attention(self, x: torch.Tensor) -> torch.Tensor:
        """Causal attention with rotary positions, [T, 2 H] -> [T, H]."""
        if self.config.model_type == "deepseek_v3":
            return self._latent_attention(x)
        dim, length = self.config.head_dim, len(x)
        q, k, v = (
            (x @ self.tensors[f"layers.0.self_attn.{name}_proj.weight"].T).view(length, -1, dim)
            for name in "qkv"
        )
        if "layers.0.self_attn.q_norm.weight" in self.tensors:
            q, k = (
                self.rms_norm(f"layers.0.self_attn.{name}_norm", y)
                for name, y in (("q", q), ("k", k))
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
        hidden = torch.ones(length, length, dtype=torch.bool).triu(1)
        if self.config.model_type == "qwen3":
            hidden |= torch.ones_like(hidden).tril(-self.config.sliding_window)
        attended = scores.masked_fill(hidden, -torch.inf).softmax(-1) @ v
        attended = attended.transpose(0, 1).reshape(length, -1)
        return attended @ self.tensors["layers.0.self_attn.o_proj.weight"].T

    def _latent_attention(self, x: torch.Tensor) -> torch.Tensor:
        module = _wide_latent_attention(self.config)
        name = "layers.0.self_attn."
        own = {k.removeprefix(name): v for k, v in self.tensors.items() if k.startswith(name)}
        module.load_state_dict(own)
        angles = deepseek.DeepseekV3RotaryEmbedding(self.config)(x, torch.arange(len(x))[None])
        future = torch.full((len(x), len(x)), -torch.inf).triu(1)
        return module(x[None], position_embeddings=angles, attention_mask=future[None, None])[0][0]


def _wide_latent_attention(config: Any) -> Any:
    """DeepSeek V3's attention, [T, 2 H] -> [T, H]."""
    module = deepseek.DeepseekV3Attention(config, 0).eval()
    for name in ("q_a_proj", "kv_a_proj_with_mqa"):
        rows = getattr(module, name).out_features
        setattr(module, name, torch.nn.Linear(2 * config.hidden_size, rows, bias=False))
    return module


# The configuration of each family of layers, and what a head changes in it.
_FAMILIES: dict[str, tuple[type[PretrainedConfig], dict[str, Any]]] = {
    "llama": (LlamaConfig, {}),
    "qwen3": (
        Qwen3Config,
        {"use_sliding_window": True, "sliding_window": 5, "max_window_layers": 0},
    ),
    "deepseek_v3": (
        DeepseekV3Config,
        {
            "num_key_value_heads": 4,
            "head_dim": 10,
            "q_lora_rank": 48,
            "kv_lora_rank": 40,
            "qk_nope_head_dim": 14,
            "qk_rope_head_dim": 10,
            "v_head_dim": 22,
            "rope_parameters": {
                "rope_type": "yarn",
                "rope_theta": 1e4,
                "factor": 8.0,
                "mscale": 1.0,
                "mscale_all_dim": 1.0,
                "original_max_position_embeddings": 64,
            },
        },
    ),
}


def _config(target: Any, family: str, **changes: Any) -> PretrainedConfig:
    kind, own = _FAMILIES[family]
    sizes = {
        "vocab_size": target.vocab_size,
        "hidden_size": target.hidden_size,
        "intermediate_size": 104,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 20,
        "max_position_embeddings": 4096,
        "rms_norm_eps": 0.02,
    }
    return kind(attn_implementation="eager", **sizes | own | changes)


def _random(shapes: dict[str, tuple[int, ...]]) -> Tensors:
    """Matrices keep the size of what they multiply; norms are around 1."""
    made: Tensors = {}
    for name, shape in shapes.items():
        noise = torch.randn(shape)
        is_norm = "norm" in name and len(shape) == 1
        made[name] = 1 + 0.3 * noise if is_norm else noise / shape[-1] ** 0.5
    return made


def _attention(config: PretrainedConfig, width: int) -> dict[str, tuple[int, ...]]:
    if config.model_type == "deepseek_v3":
        made = _wide_latent_attention(config).state_dict().items()
        return {name.removesuffix(".weight"): tuple(x.shape) for name, x in made}
    hidden, dim = config.hidden_size, config.head_dim
    q, kv = config.num_attention_heads * dim, config.num_key_value_heads * dim
    norms = ("q_norm", "k_norm") if config.model_type == "qwen3" else ()
    return {
        **dict.fromkeys(norms, (dim,)),
        "q_proj": (q, width),
        "k_proj": (kv, width),
        "v_proj": (kv, width),
        "o_proj": (hidden, q),
    }


def _layer(config: PretrainedConfig, name: str, width: int) -> dict[str, tuple[int, ...]]:
    hidden, size = config.hidden_size, config.intermediate_size
    attention = _attention(config, width).items()
    return {
        **{f"{name}.self_attn.{part}.weight": shape for part, shape in attention},
        f"{name}.post_attention_layernorm.weight": (hidden,),
        f"{name}.mlp.gate_proj.weight": (size, hidden),
        f"{name}.mlp.up_proj.weight": (size, hidden),
        f"{name}.mlp.down_proj.weight": (hidden, size),
    }


def make_eagle(path: Path, target: Any, *, embeds: bool = False, family: str = "llama") -> Head:
    """A head of two layers of this family for a target with this configuration; with embeddings of
    its own if it `embeds`."""
    torch.manual_seed(7)
    config = _config(target, family, num_hidden_layers=2)
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
    path: Path,
    target: Any,
    *,
    speculators: bool = False,
    hidden_size: int | None = None,
    family: str = "llama",
    norms: dict[str, int] | None = None,
    mask: int | None = None,
) -> Head:
    """A head of a layer of this family, with a vocabulary of its own, for a target with this
    configuration, as it is published or by the speculators library; with states of another size if
    `hidden_size` is given, and with `norms` of the target's states, each over as many of them; with
    a state for the token `mask` if it drafts in parallel."""
    torch.manual_seed(8)
    config = _config(target, family, num_hidden_layers=1, norm_before_residual=speculators)
    config.norm_output = bool(norms)
    config.hidden_size = hidden = hidden_size or target.hidden_size
    shapes = _layer(config, "layers.0", 2 * hidden)
    shapes |= {f"layers.0.{name}.weight": (hidden,) for name in ("input_layernorm", "hidden_norm")}
    shapes |= {"fc.weight": (hidden, 3 * target.hidden_size), "norm.weight": (hidden,)}
    shapes["lm_head.weight"] = (DRAFT_VOCAB, hidden)
    for name, states in (norms or {}).items():
        shapes[f"{name}.weight"] = (states * target.hidden_size,)
    if hidden_size is not None or speculators:
        shapes["embed_tokens.weight"] = (config.vocab_size, hidden)
    if mask is not None:
        shapes["mask_hidden"] = (1, 1, 3 * target.hidden_size)
    tensors = _random(shapes)
    ids = torch.randperm(config.vocab_size)[:DRAFT_VOCAB].sort().values
    known = torch.zeros(config.vocab_size, dtype=torch.bool)
    known[ids] = True
    stored = {**tensors, "d2t": ids - torch.arange(DRAFT_VOCAB), "t2d": known}
    fields = {"draft_vocab_size": DRAFT_VOCAB, "target_hidden_size": target.hidden_size}
    if mask is not None:
        fields["ptd_token_id"] = mask
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
