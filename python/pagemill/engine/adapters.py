"""The LoRA adapters of an engine, by name.

    adapters = Adapters(executor, engine, store, built, source, config.lora)
    adapters.load_adapter(name="sql", path="/adapters/sql")
    request.adapter = adapters.id_of("sql")

Each load has an id of its own, and KV is found by it: what was computed with weights that have been
replaced is never used again.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pagemill import _native
from pagemill.config.lora import MAX_NAME_CHARS, LoraConfig
from pagemill.config.quantities import format_bytes
from pagemill.engine.outputs import EngineError
from pagemill.runner.build import BuiltModel
from pagemill.weights.adapters import adapter_layers, read_adapter
from pagemill.weights.errors import WeightsError
from pagemill.weights.source import ModelSource

_LOGGER = logging.getLogger("pagemill.engine")


@dataclass(frozen=True, slots=True)
class LoadedAdapter:
    """An adapter that requests may name."""

    id: int
    path: str
    rank: int
    bytes: int


class Adapters:
    """Loads and unloads adapters while the engine runs. Thread safe."""

    def __init__(
        self,
        executor: _native.NativeExecutor,
        engine: _native.Engine,
        store: _native.AdapterStore,
        built: BuiltModel,
        source: ModelSource,
        config: LoraConfig,
    ) -> None:
        self._executor, self._engine, self._store = executor, engine, store
        self._targets, self._source = built.adapter_targets, source
        self._max_loaded = config.max_cpu_loras
        self._loaded: dict[str, LoadedAdapter] = {}
        # Ids of what the last load of a name has replaced, for requests that were waiting.
        self._replaced: dict[str, int] = {}
        self._loading = threading.Lock()

    def id_of(self, name: str) -> int:
        """The id of the adapter `name` for requests.

        Raises:
            EngineError: NOT_FOUND: none has this name.
        """
        loaded = self._loaded.get(name)
        if loaded is None:
            raise _unknown(name)
        return loaded.id

    def load_adapter(self, name: str, path: str, load_inplace: bool = False) -> dict[str, Any]:
        """Loads the adapter in the folder `path`; with `load_inplace` one of this name is replaced:
        requests that were submitted before keep the old weights, which stay until the next time.

        Raises:
            EngineError: INVALID_ARGUMENT: the adapter cannot be used, the name is taken, or too
                many are loaded.
        """
        if not 0 < len(name) <= MAX_NAME_CHARS:
            raise EngineError(
                "INVALID_ARGUMENT",
                f"The name of an adapter has 1 to {MAX_NAME_CHARS} characters.",
                "lora_name",
            )
        with self._loading:
            before = self._loaded.get(name)
            if before is not None and not load_inplace:
                raise EngineError(
                    "INVALID_ARGUMENT",
                    f"The adapter `{name}` is loaded already; unload it, or send"
                    " `load_inplace: true`.",
                    "lora_name",
                )
            if before is None and len(self._loaded) >= self._max_loaded:
                raise EngineError(
                    "INVALID_ARGUMENT",
                    f"{len(self._loaded)} adapters are loaded, as many as --max-cpu-loras allows;"
                    " unload one.",
                    "lora_name",
                )
            loaded = self._read(path)
            self._loaded[name] = loaded
            self._forget_replaced(name)
            if before is not None:
                self._replaced[name] = before.id
        _LOGGER.info(
            "adapter %s: rank %d, %s, from %s", name, loaded.rank, format_bytes(loaded.bytes), path
        )
        return _facts(name, loaded)

    def unload_adapter(self, name: str) -> dict[str, Any]:
        """Forgets an adapter: requests that run keep it, those that wait fail.

        Raises:
            EngineError: NOT_FOUND: none has this name.
        """
        with self._loading:
            loaded = self._loaded.pop(name, None)
            if loaded is None:
                raise _unknown(name)
            self._store.remove(loaded.id)
            self._forget_replaced(name)
        _LOGGER.info("adapter %s unloaded", name)
        return _facts(name, loaded)

    def adapters(self) -> list[dict[str, Any]]:
        """The loaded ones: name, path, rank and bytes of each."""
        return [_facts(name, loaded) for name, loaded in list(self._loaded.items())]

    def _forget_replaced(self, name: str) -> None:
        replaced = self._replaced.pop(name, None)
        if replaced is not None:
            self._store.remove(replaced)

    def _read(self, path: str) -> LoadedAdapter:
        try:
            adapter = read_adapter(Path(path).expanduser())
            layers = adapter_layers(adapter, self._targets, self._source)
            weights = _native.make_adapter(self._executor, layers)
        except (WeightsError, OSError) as error:
            raise EngineError("INVALID_ARGUMENT", f"The adapter cannot be used: {error}") from error
        except _native.StatusError as error:
            raise EngineError(
                "INVALID_ARGUMENT", f"The adapter in {path} does not fit the model: {error}"
            ) from error
        adapter_id = self._engine.new_adapter_id()
        self._store.add(adapter_id, weights)
        return LoadedAdapter(adapter_id, str(path), adapter.rank, weights.bytes)


def _facts(name: str, loaded: LoadedAdapter) -> dict[str, Any]:
    return {"name": name, "path": loaded.path, "rank": loaded.rank, "bytes": loaded.bytes}


def _unknown(name: str) -> EngineError:
    return EngineError("NOT_FOUND", f"The model `{name[:200]}` does not exist.", "model")
