"""Reads an adapter into the memory of all ranks."""

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


class AdapterReader:
    """Reads adapters for the programs of all ranks."""

    def __init__(
        self,
        source: ModelSource,
        executor: _native.NativeExecutor | _native.DeviceExecutor,
        ranks: Sequence[BuiltModel],
        workers: RankWorkers | None,
    ) -> None:
        """`executor` is that of rank 0; `workers` are the other ranks, if there are some."""
        self._source, self._executor, self._workers = source, executor, workers
        self._targets = [built.adapter_targets for built in ranks]

    def read(self, path: Path, adapter_id: int, store: _native.AdapterStore) -> ReadAdapter:
        """Reads the adapter in the folder `path` into the `store` of rank 0, and those of others.

        Raises:
            EngineError: INVALID_ARGUMENT: it cannot be used.
        """
        try:
            adapter = read_adapter(path)
            parts = [adapter_layers(adapter, targets, self._source) for targets in self._targets]
            weights = _native.make_adapter(self._executor, parts[0])
        except (WeightsError, OSError) as error:
            raise EngineError("INVALID_ARGUMENT", f"The adapter cannot be used: {error}") from error
        except _native.StatusError as error:
            raise EngineError(
                "INVALID_ARGUMENT", f"The adapter in {path} does not fit the model: {error.message}"
            ) from error
        store.add(adapter_id, weights)
        others = 0
        if self._workers is not None:
            try:
                others = self._workers.add_adapter(adapter_id, parts[1:])
            except EngineError:
                store.remove(adapter_id)
                raise
        return ReadAdapter(adapter.rank, weights.bytes + others)
