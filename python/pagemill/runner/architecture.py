"""What is known of a model before it is built: its architecture, and the media that it takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pagemill.models.base import ModelEncoder, encoders_of
from pagemill.models.table import architecture_of, model_class
from pagemill.weights.source import ModelSource


def media_encoders(source: ModelSource) -> Sequence[ModelEncoder]:
    """The encoders of the model of `source`, without its weights; empty if it takes no media.

    Raises:
        ModelConfigError: the architecture or one of its settings is not supported.
    """
    source = with_architecture(source)
    return encoders_of(model_class(source.architecture).from_config(source.config))


def with_architecture(source: ModelSource) -> ModelSource:
    """`source`, with the architecture that its `model_type` stands for if it names none.

    Raises:
        ModelConfigError: the type is not known, either.
    """
    if source.config.get("architectures"):
        return source
    named = {"architectures": [architecture_of(source.config.get("model_type"))]}
    return replace(source, config={**source.config, **named})
