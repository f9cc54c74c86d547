"""A row of the table of architectures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Architecture:
    """A row: the class, as `module:Class` of `package`, what people call such models, their
    `model_type` in a config.json, and what they are for. Those that generate may embed, too.

    `tensor_parallel`: whether ranks divide all large matrices of the model, "partly" if every rank
    computes some layers or projections whole. `cuts`: behind which layers the program can be cut
    into stages of a pipeline; "some layers" if others read what is in front of them."""

    location: str
    title: str
    model_types: tuple[str, ...]
    task: Literal[
        "text",
        "text and images",
        "text, images and videos",
        "text, images and audio",
        "text, images, videos and audio",
        "text and audio",
        "text of audio",
        "text of images",
        "text of text",
        "embeddings",
        "embeddings of text and images",
    ] = "text"
    tensor_parallel: Literal["yes", "partly"] = "yes"
    cuts: Literal["any layer", "some layers"] = "any layer"
    package: str = "pagemill.models"

    @property
    def embeds(self) -> bool:
        """Whether it does nothing but embed."""
        return self.task.startswith("embeddings")
