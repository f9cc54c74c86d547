"""The models that a server has, by the names that requests give."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple

from pagemill.server.errors import ApiError
from pagemill.server.pipeline import Pipeline


class Task(StrEnum):
    """What a model can be used for; endpoints other than administrative ones belong to one."""

    GENERATE = "generate"
    EMBED = "embed"


_VERBS: Mapping[Task, str] = {Task.GENERATE: "generates text", Task.EMBED: "makes embeddings"}


class Resolved(NamedTuple):
    """What a name stands for: a model, and an adapter to apply to it (None: the model as it is)."""

    model: Pipeline
    adapter: str | None


class ModelRegistry:
    """The loaded model under its served names."""

    def __init__(self, model: Pipeline) -> None:
        self._model = model
        self.names = model.model.names
        self.task = Task.EMBED if model.model.pooling else Task.GENERATE

    @property
    def summary(self) -> str:
        """What the server does, for refusals."""
        return f"The model `{self.names[0]}` {_VERBS[self.task]}"

    def resolve(self, name: str | None) -> Resolved:
        """The model that a request names; None is the only one.

        Raises:
            ApiError: 404 for a name that is not served.
        """
        if name is not None and name not in self.names:
            raise ApiError(404, f"The model `{name[:200]}` does not exist.", "model")
        return Resolved(self._model, None)
