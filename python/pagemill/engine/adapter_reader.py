"""Reads an adapter into the memory of all ranks, for the model and its encoders."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pagemill import _native
from pagemill.engine.outputs import EngineError
from pagemill.engine.ranks import RankWorkers
from pagemill.runner.build import BuiltModel
from pagemill.weights.adapters import adapter_layers, read_adapter
from pagemill.weights.errors import WeightsError
from pagemill.weights.source import ModelSource


@dataclass(frozen=True, slots=True)
class ReadAdapter:
    """An adapter in the store of each rank; `bytes` of all together."""

    rank: int
    bytes: int
    changes_encoders: bool


class AdapterReader:
    """Reads adapters for the programs of all ranks."""

    def __init__(
        self,
        source: ModelSource,
        executors: Sequence[_native.NativeExecutor | _native.DeviceExecutor],
        ranks: Sequence[BuiltModel],
        workers: RankWorkers | None,
    ) -> None:
        """`executors` are those of rank 0: of the model, then of its encoders; `workers` are the
        other ranks, if there are some, which have no encoders."""
        self._source, self._executors, self._workers = source, executors, workers
        self._ranks = [built.adapter_targets for built in ranks]
        self._encoders = [encoder.adapter_targets for encoder in ranks[0].encoders]
        self._unread = ranks[0].unread

    def read(self, path: Path, adapter_id: int, store: _native.AdapterStore) -> ReadAdapter:
        """Reads the adapter in the folder `path` into the `store` of rank 0, and those of others.

        Raises:
            EngineError: INVALID_ARGUMENT: it cannot be used.
        """
        try:
            adapter = read_adapter(path)
            programs = (*self._ranks, *self._encoders)
            layers = adapter_layers(adapter, programs, self._unread, self._source)
            ranks, encoders = layers[: len(self._ranks)], layers[len(self._ranks) :]
            parts = [
                _native.make_adapter(executor, own) if own else None
                for executor, own in zip(self._executors, (ranks[0], *encoders), strict=True)
            ]
        except (WeightsError, OSError) as error:
            raise EngineError("INVALID_ARGUMENT", f"The adapter cannot be used: {error}") from error
        except _native.StatusError as error:
            raise EngineError(
                "INVALID_ARGUMENT", f"The adapter in {path} does not fit the model: {error.message}"
            ) from error
        store.add(adapter_id, parts)
        others = 0
        if self._workers is not None:
            try:
                others = self._workers.add_adapter(adapter_id, ranks[1:])
            except EngineError:
                store.remove(adapter_id)
                raise
        own_bytes = sum(part.bytes for part in parts if part is not None)
        return ReadAdapter(adapter.rank, own_bytes + others, any(encoders))
