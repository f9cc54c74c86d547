"""ALiBi for any model of `transformers`, as the attention implementation "alibi": references of
families with ALiBi that it does not have. The model itself must have no other positions."""

from __future__ import annotations

from typing import Any

import torch
from pagemill.models.alibi import alibi_slopes
from transformers import AttentionInterface
from transformers.masking_utils import AttentionMaskInterface, eager_mask

NAME = "alibi"


def _attend(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor,
    scaling: float,
    **_: Any,
) -> tuple[torch.Tensor, None]:
    """q [B, heads, T, D], k and v [B, KV heads, S, D], a mask that is added -> [B, T, heads, D]."""
    del module
    groups = query.shape[1] // key.shape[1]
    key, value = key.repeat_interleave(groups, 1), value.repeat_interleave(groups, 1)
    slopes = torch.tensor(alibi_slopes(query.shape[1]))
    keys, queries = torch.arange(key.shape[2]), torch.arange(query.shape[2])
    distance = keys - (queries[:, None] + key.shape[2] - query.shape[2])
    scores = query @ key.transpose(2, 3) * scaling + slopes[:, None, None] * distance
    weights = (scores + attention_mask[..., : key.shape[2]]).softmax(-1)
    return (weights @ value).transpose(1, 2), None


def register() -> None:
    """Makes the implementation known."""
    AttentionInterface.register(NAME, _attend)
    AttentionMaskInterface.register(NAME, eager_mask)
