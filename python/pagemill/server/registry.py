"""The models that a server has, by the names that requests give."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from pagemill.inputs.task import Task
from pagemill.server.caller import Caller
from pagemill.server.errors import ApiError
from pagemill.server.pipeline import Pipeline

_VERBS: Mapping[Task, str] = {
    Task.GENERATE: "generates text",
    Task.EMBED: "makes embeddings",
    Task.CLASSIFY: "classifies texts",
    Task.TOKEN_EMBED: "makes embeddings of tokens",
    Task.TOKEN_CLASSIFY: "classifies tokens",
}


class Resolved(NamedTuple):
    """What a name stands for: a model, and an adapter to apply to it (None: the model as it is)."""

    model: Pipeline
    adapter: str | None


class ModelRegistry:
    """The loaded model under its served names."""

    def __init__(self, model: Pipeline) -> None:
        self._model = model
        self.names = model.model.names
        self.task = model.model.task

    @property
    def summary(self) -> str:
        """What the server does, for refusals."""
        return f"The model `{self.names[0]}` {_VERBS[self.task]}"

    def names_for(self, caller: Caller) -> tuple[str, ...]:
        """The names that requests of `caller` may give."""
        return tuple(name for name in self.names if caller.may_use(name))

    def resolve(self, name: str | None, caller: Caller) -> Resolved:
        """The model that a request of `caller` names; None is the only one.

        Raises:
            ApiError: 404 for a name that is not served, or not to `caller`.
        """
        names = self.names_for(caller)
        if name is None and not names:
            raise ApiError(404, f"No model is for the API key {caller.key_id!r}.", "model")
        if name is not None and name not in names:
            raise ApiError(404, f"The model `{name[:200]}` does not exist.", "model")
        return Resolved(self._model, None)
