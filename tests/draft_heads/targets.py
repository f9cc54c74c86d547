"""Tiny models that heads draft for."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from transformers import PreTrainedModel

from tests.draft_heads.head_run import prompts_for
from tests.families.families import make

Array = npt.NDArray[np.float32]


class Target:
    """A tiny model that heads draft for."""

    def __init__(self, path: Path, family: str = "llama", layers: int = 7) -> None:
        self.path = path / "target"
        changes = {"num_hidden_layers": layers}
        self.reference: PreTrainedModel = make(family, self.path, changes=changes)
        self.config = self.reference.config
        self.prompts = prompts_for(self.config.vocab_size)

    @property
    def embeddings(self) -> torch.Tensor:
        return self.reference.get_input_embeddings().weight

    @torch.no_grad()
    def states(self, tokens: list[int]) -> list[Array]:
        """What enters each layer, then the final states."""
        outputs = self.reference(torch.tensor([tokens]), output_hidden_states=True)
        return [state[0].numpy() for state in outputs.hidden_states]
