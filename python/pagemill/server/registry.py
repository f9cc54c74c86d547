"""The models that a server has, by the names that requests give."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from pagemill.config.lora import MAX_NAME_CHARS
from pagemill.engine.outputs import EngineError
from pagemill.inputs.media_kind import MediaKind
from pagemill.inputs.task import Task
from pagemill.server.access.caller import Caller
from pagemill.server.errors import ApiError, from_engine
from pagemill.server.model_info import ModelInfo
from pagemill.server.pipeline import Pipeline
from pagemill.server.speech.speech import Speech

_VERBS: Mapping[Task, str] = {
    Task.GENERATE: "generates text",
    Task.TRANSCRIBE: "transcribes speech",
    Task.EMBED: "makes embeddings",
    Task.CLASSIFY: "classifies texts",
    Task.TOKEN_EMBED: "makes embeddings of tokens",
    Task.TOKEN_CLASSIFY: "classifies tokens",
    Task.MEDIA_EMBED: "encodes media",
}


_MAX_NAMES_SHOWN = 4


class Resolved(NamedTuple):
    """What a name stands for: a model, and the adapter that it is computed with (None: the model as
    it is)."""

    model: Pipeline
    adapter: str | None


class ModelRegistry:
    """The loaded model under its served names, and its adapters under theirs.

    Adapters come and go in the engine, which several API processes share: any other name is taken
    for an adapter's if there may be some, and the engine refuses a request whose adapter it lacks.
    """

    def __init__(self, model: Pipeline) -> None:
        self._model = model
        self.names = model.model.names
        self.tasks = model.model.tasks

    @property
    def summary(self) -> str:
        """What the server does, for refusals."""
        verbs = " and ".join(_VERBS[task] for task in sorted(self.tasks))
        return f"The model `{self.names[0]}` {verbs}"

    @property
    def media_kinds(self) -> Sequence[MediaKind]:
        """Those of the media that messages may have."""
        return self._model.rendering.media.kinds

    @property
    def speech(self) -> Speech:
        """What reads audio, of a model that transcribes."""
        assert self._model.speech is not None, "there are no routes of transcriptions then"
        return self._model.speech

    @property
    def base(self) -> ModelInfo:
        """The model itself."""
        return self._model.model

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
        if name is None or name in names:
            return Resolved(self._model, None)
        may_be_adapter = self._model.model.adapters and name not in self.names
        if not may_be_adapter or len(name) > MAX_NAME_CHARS or not caller.may_use(name):
            raise ApiError(404, _no_such_model(name, names), "model")
        return Resolved(self._model.with_adapter(name), name)

    async def adapters(self, caller: Caller) -> list[dict[str, Any]]:
        """The loaded adapters that requests of `caller` may name: see `Adapters.adapters`.

        Raises:
            ApiError: the engine cannot be reached.
        """
        if not self._model.model.adapters:
            return []
        try:
            loaded = await self._model.engine.call("adapters")
        except EngineError as error:
            raise from_engine(error) from error
        return [adapter for adapter in loaded if caller.may_use(adapter["name"])]


def _no_such_model(name: str, names: Sequence[str]) -> str:
    shown = ", ".join(f"`{each[:200]}`" for each in names[:_MAX_NAMES_SHOWN])
    more = " and others (see /v1/models)" if len(names) > _MAX_NAMES_SHOWN else ""
    here = f"; this server has {shown}{more}" if names else ""
    return f"The model `{name[:200]}` does not exist{here}."
