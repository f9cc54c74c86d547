"""A rank's part of an adapter, on its way to the process of the rank: rank 0 reads adapters and
writes each part to a file, which the rank reads.

    rank_jobs.send(process, "adapter", **write_part(adapter_id, path, layers))   # rank 0
    num_bytes = add_part(executor, store, job)                                   # the rank
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pagemill import _native
from pagemill.weights.adapters import Layer

_ARRAYS = (2, 3, 5, 6)  # of a Layer


def write_part(adapter_id: int, path: Path, layers: Sequence[Layer]) -> dict[str, Any]:
    """Writes the matrices of `layers` to `path`; returns the job that adds them."""
    arrays: dict[str, Any] = {}
    rest: list[list[Any]] = []
    for i, layer in enumerate(layers):
        present = {f"{i}.{k}": layer[k] for k in _ARRAYS if layer[k] is not None}
        arrays |= present
        rest.append([layer[0], layer[1], layer[4]])
    np.savez(path, **arrays)
    return {"id": adapter_id, "path": str(path), "layers": rest}


def add_part(
    executor: _native.NativeExecutor | _native.DeviceExecutor,
    store: _native.AdapterStore,
    job: Mapping[str, Any],
) -> int:
    """Adds the part of a job to the store of this rank; returns its bytes.

    Raises:
        ValueError: it does not fit.
        OSError: it cannot be read.
    """
    layers: list[Layer] = []
    try:
        with np.load(job["path"], allow_pickle=False) as arrays:
            for i, (name, expert, scale) in enumerate(job["layers"]):
                a, b, gain, offset = (arrays.get(f"{i}.{k}") for k in _ARRAYS)
                layers.append((name, expert, a, b, scale, gain, offset))
        weights = _native.make_adapter(executor, layers)
        store.add(job["id"], [weights])
    except (_native.StatusError, KeyError, ValueError) as error:
        raise ValueError(f"The adapter does not fit a rank: {error}") from error
    return weights.bytes
