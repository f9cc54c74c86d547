"""A rank's part of an adapter, on its way to the process of the rank: rank 0 reads adapters and
writes each part to a file, which the worker reads.

    send(process, adapter_id, path, layers)        # rank 0
    num_bytes = receive_reply(process)
    serve(executor, store, sys.stdin, sys.stdout)   # a worker, in a thread of its own
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np

from pagemill import _native
from pagemill.engine.outputs import EngineError
from pagemill.weights.adapters import Layer

_ARRAYS = (2, 3, 5, 6)  # of a Layer


def send(
    process: subprocess.Popen[bytes], adapter_id: int, path: Path, layers: Sequence[Layer]
) -> None:
    """Writes `layers` to `path`, and asks the worker to read them.

    Raises:
        EngineError: the worker has ended.
    """
    arrays: dict[str, Any] = {}
    rest: list[list[Any]] = []
    for i, layer in enumerate(layers):
        present = {f"{i}.{k}": layer[k] for k in _ARRAYS if layer[k] is not None}
        arrays |= present
        rest.append([layer[0], layer[1], layer[4]])
    np.savez(path, **arrays)
    job = {"id": adapter_id, "path": str(path), "layers": rest}
    assert process.stdin is not None
    try:
        process.stdin.write(json.dumps(job).encode() + b"\n")
        process.stdin.flush()
    except BrokenPipeError as error:
        raise _ended(process) from error


def receive_reply(process: subprocess.Popen[bytes]) -> int:
    """The bytes of the part that the worker was sent, once it has it.

    Raises:
        EngineError: it cannot use it, or has ended.
    """
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise _ended(process)
    reply = json.loads(line)
    if "error" in reply:
        raise EngineError("INVALID_ARGUMENT", f"The adapter does not fit a rank: {reply['error']}")
    return reply["bytes"]


def serve(
    executor: _native.NativeExecutor | _native.DeviceExecutor,
    store: _native.AdapterStore,
    jobs: IO[str],
    replies: IO[str],
) -> None:
    """Adds what `send` sends to the store of this rank, until `jobs` ends."""
    for line in jobs:
        try:
            reply: dict[str, Any] = {"bytes": _add(executor, store, json.loads(line))}
        except (_native.StatusError, OSError, ValueError, KeyError) as error:
            reply = {"error": str(error)}
        replies.write(json.dumps(reply) + "\n")
        replies.flush()


def _add(
    executor: _native.NativeExecutor | _native.DeviceExecutor,
    store: _native.AdapterStore,
    job: dict[str, Any],
) -> int:
    with np.load(job["path"], allow_pickle=False) as arrays:
        layers: list[Layer] = []
        for i, (name, expert, scale) in enumerate(job["layers"]):
            a, b, gain, offset = (arrays.get(f"{i}.{k}") for k in _ARRAYS)
            layers.append((name, expert, a, b, scale, gain, offset))
    weights = _native.make_adapter(executor, layers)
    store.add(job["id"], weights)
    return weights.bytes


def _ended(process: subprocess.Popen[bytes]) -> EngineError:
    return EngineError("UNAVAILABLE", f"process {process.pid}, a rank of the model, has ended")
