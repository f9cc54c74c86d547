"""What the plain references of several families have in common."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel


def rotated(x: torch.Tensor, base: float) -> torch.Tensor:
    """x [B, heads, T, D] with its halves rotated by position * base^(-2i / D)."""
    tokens, half = x.shape[-2], x.shape[-1] // 2
    angles = torch.arange(tokens)[:, None] * base ** (-torch.arange(half) / half)
    a, b = x[..., :half], x[..., half:]
    cos, sin = angles.cos(), angles.sin()
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


def largest_shares(shares: torch.Tensor, choices: int) -> torch.Tensor:
    """`shares` [..., E] with all but the `choices` largest of a row 0."""
    best = shares.topk(choices, dim=-1)
    return torch.zeros_like(shares).scatter(-1, best.indices, best.values)


class ReferenceModel(PreTrainedModel):
    """`model`, which has `embed_tokens`, and a head."""

    def __init__(self, config: Any, model: Any) -> None:
        super().__init__(config)
        self.model = model
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.post_init()

    def get_input_embeddings(self) -> nn.Module:
        return self.model.embed_tokens

    def get_output_embeddings(self) -> nn.Module:
        return self.lm_head
