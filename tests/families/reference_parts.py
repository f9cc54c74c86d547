"""What the plain references of several families have in common."""

from __future__ import annotations

import torch


def rotated(x: torch.Tensor, base: float) -> torch.Tensor:
    """x [B, heads, T, D] with its halves rotated by position * base^(-2i / D)."""
    tokens, half = x.shape[-2], x.shape[-1] // 2
    angles = torch.arange(tokens)[:, None] * base ** (-torch.arange(half) / half)
    a, b = x[..., :half], x[..., half:]
    cos, sin = angles.cos(), angles.sin()
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)
