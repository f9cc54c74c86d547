"""The LoRA adapters of an engine, by name.

    adapters = Adapters(reader, engine, store, config.lora, cache_dir)
    adapters.load_adapter(name="sql", path="/adapters/sql")
    request.adapter = adapters.id_of("sql")

Each load has an id of its own, and KV is found by it: what was computed with weights that have been
replaced is never used again.

A request with media that names no adapter runs under the one that has the name of their kind
(`default_mm_loras`).

What the operator loads stays until it is unloaded. What requests bring in from `lora_folder` makes
room for others.
"""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pagemill import _native
from pagemill.config.fields import ConfigError
from pagemill.config.lora import MAX_NAME_CHARS, LoraConfig
from pagemill.config.quantities import format_bytes
from pagemill.engine.adapter_reader import AdapterReader
from pagemill.engine.outputs import EngineError
from pagemill.weights.adapters import CONFIG_FILE
from pagemill.weights.fetch import FetchError, resolve

_LOGGER = logging.getLogger("pagemill.engine")


@dataclass(frozen=True, slots=True)
class LoadedAdapter:
    """An adapter that requests may name."""

    id: int
    path: str
    rank: int
    bytes: int
    stays: bool
    """Until it is unloaded: the operator has loaded it."""


class Adapters:
    """Loads and unloads adapters while the engine runs. Thread safe."""

    def __init__(
        self,
        reader: AdapterReader,
        engine: _native.Engine,
        store: _native.AdapterStore,
        config: LoraConfig,
        cache_dir: Path,
    ) -> None:
        """`cache_dir` keeps what is fetched from the hub.

        Raises:
            ConfigError: `config.lora_folder` is not a folder.
        """
        self._reader, self._engine, self._store = reader, engine, store
        self._max_loaded, self._cache_dir = config.max_cpu_loras, cache_dir
        self._folder = _checked_folder(config.lora_folder)
        self._media = tuple(config.media)
        self._loaded: dict[str, LoadedAdapter] = {}
        # Ids of what the last load of a name has replaced, for requests that were waiting.
        self._replaced: dict[str, int] = {}
        # Ids of those in memory that change encoders.
        self._of_encoders: set[int] = set()
        self._uses = itertools.count()
        self._last_use: dict[str, int] = {}
        self._loading = threading.Lock()

    def id_of(self, name: str) -> int:
        """The id of the adapter `name` for requests.

        Raises:
            EngineError: NOT_FOUND: none has this name.
        """
        loaded = self._loaded.get(name)
        if loaded is None:
            raise _unknown(name)
        self._last_use[name] = next(self._uses)
        return loaded.id

    def id_for_media(self, kinds: Collection[str]) -> int:
        """The id of the adapter for requests with media of these kinds that name none: that of the
        first kind of `default_mm_loras` among them; 0, the model as it is, if none is.

        Raises:
            EngineError: UNAVAILABLE: the operator has unloaded it.
        """
        kind = next((each for each in self._media if each in kinds), None)
        if kind is None:
            return 0
        loaded = self._loaded.get(kind)
        if loaded is None:
            raise EngineError(
                "UNAVAILABLE",
                f"Requests with {kind} need the adapter `{kind}`, which has been unloaded; send a"
                " request without, or name another adapter.",
                "model",
            )
        return loaded.id

    def media_id(self, content_id: str, adapter_id: int) -> str:
        """By which an item is known that a request with this adapter has: encoders that the adapter
        changes make other embeddings of it."""
        return f"{content_id}/{adapter_id}" if adapter_id in self._of_encoders else content_id

    @property
    def on_demand(self) -> bool:
        """Whether requests may name adapters that `require_adapter` has to load."""
        return self._folder is not None

    def require_adapter(self, name: str) -> None:
        """Loads the adapter of `lora_folder` with this name, if none has it yet.

        Raises:
            EngineError: NOT_FOUND: there is none. INVALID_ARGUMENT: it cannot be used.
                Or memory is full of adapters that the operator has loaded.
        """
        with self._loading:
            if name in self._loaded:
                self._last_use[name] = next(self._uses)
                return
            path = self._in_folder(name)
            if path is None:
                raise _unknown(name)
            leaving = self._leaving()
            self._keep(name, self._read(path, stays=False), leaving)

    def load_adapter(self, name: str, path: str, load_inplace: bool = False) -> dict[str, Any]:
        """Loads the adapter in the folder `path`, or of this name on the hub. With `load_inplace`
        one of this name is replaced: requests that were submitted before keep the old weights,
        which stay until the next time.

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
            leaving = self._leaving() if before is None else None
            loaded = self._read(self._resolved(path), stays=True)
            self._keep(name, loaded, leaving)
            self._forget_replaced(name)
            if before is not None:
                self._replaced[name] = before.id
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
            self._forget(name, loaded)
        return _facts(name, loaded)

    def adapters(self) -> list[dict[str, Any]]:
        """The loaded ones: name, path, rank and bytes of each."""
        return [_facts(name, loaded) for name, loaded in list(self._loaded.items())]

    def _keep(self, name: str, loaded: LoadedAdapter, leaving: str | None) -> None:
        if leaving is not None:
            self._forget(leaving, self._loaded.pop(leaving))
        self._engine.count_adapters(loaded=1, evicted=int(leaving is not None))
        self._last_use[name] = next(self._uses)
        self._loaded[name] = loaded
        _LOGGER.info(
            "adapter %s: rank %d, %s, from %s",
            name,
            loaded.rank,
            format_bytes(loaded.bytes),
            loaded.path,
        )

    def _forget(self, name: str, loaded: LoadedAdapter) -> None:
        self._remove(loaded.id)
        self._last_use.pop(name, None)
        self._forget_replaced(name)
        _LOGGER.info("adapter %s left memory", name)

    def _leaving(self) -> str | None:
        """The name of the adapter whose place one more takes, once it is read; None if there is
        room. Requests that run keep what leaves; those that wait for it fail, to be sent again."""
        if len(self._loaded) < self._max_loaded:
            return None
        leaving = [name for name, loaded in self._loaded.items() if not loaded.stays]
        if not leaving:
            raise EngineError(
                "INVALID_ARGUMENT",
                f"{len(self._loaded)} adapters are loaded, as many as --max-cpu-loras allows;"
                " unload one.",
                "lora_name",
            )
        return min(leaving, key=lambda name: self._last_use[name])

    def _in_folder(self, name: str) -> Path | None:
        """The adapter of this name; names that lead out of the folder have none."""
        if self._folder is None or name in ("", ".", "..") or "/" in name or "\0" in name:
            return None
        path = self._folder / name
        return path if (path / CONFIG_FILE).is_file() else None

    def _resolved(self, path: str) -> Path:
        folder = Path(path).expanduser()
        if folder.exists():
            return folder
        try:
            return resolve(path, cache_dir=self._cache_dir)
        except FetchError as error:
            raise EngineError("INVALID_ARGUMENT", f"The adapter cannot be used: {error}") from error

    def _forget_replaced(self, name: str) -> None:
        replaced = self._replaced.pop(name, None)
        if replaced is not None:
            self._remove(replaced)

    def _remove(self, adapter_id: int) -> None:
        self._store.remove(adapter_id)
        self._of_encoders.discard(adapter_id)

    def _read(self, path: Path, *, stays: bool) -> LoadedAdapter:
        adapter_id = self._engine.new_adapter_id()
        read = self._reader.read(path, adapter_id, self._store)
        if read.changes_encoders:
            self._of_encoders.add(adapter_id)
        return LoadedAdapter(adapter_id, str(path), read.rank, read.bytes, stays)


def _checked_folder(path: str | None) -> Path | None:
    if path is None:
        return None
    folder = Path(path).expanduser().resolve()
    if not folder.is_dir():
        raise ConfigError(f"--lora-folder: {path} is not a folder")
    return folder


def _facts(name: str, loaded: LoadedAdapter) -> dict[str, Any]:
    return {"name": name, "path": loaded.path, "rank": loaded.rank, "bytes": loaded.bytes}


def _unknown(name: str) -> EngineError:
    message = f"The model `{name[:200]}` does not exist; /v1/models lists those there are."
    return EngineError("NOT_FOUND", message, "model")
