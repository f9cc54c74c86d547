"""The operator's routes of profiles: each step of the engine, in Chrome's trace format."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from pagemill.server.access.caller import Caller
from pagemill.server.endpoints.engine import call_engine, log_operation
from pagemill.server.errors import ApiError
from pagemill.server.protocol.operation import ProfileRequest, ProfileStarted, ProfileState
from pagemill.server.state import ServerState

_MAX_FILES = 1000


async def start_profile(
    server: ServerState, body: ProfileRequest, caller: Caller
) -> ProfileStarted:
    """Records each step and each op of the model from now on."""
    log_operation("start_profile", caller)
    folder = server.config.profile_dir
    if folder is None:
        raise ApiError(400, "No profile can be written: start the server with --profile-dir.")
    path = _new_file(Path(folder), body.profile_prefix)
    limits = {"max_steps": body.max_iterations, "max_seconds": body.max_seconds}
    try:
        await call_engine(server, caller, "start_profile", path=str(path), **limits)
    except ApiError:
        path.unlink()
        raise
    return ProfileStarted(str(path))


async def stop_profile(server: ServerState, body: dict[str, Any], caller: Caller) -> ProfileState:
    """Writes what was recorded."""
    del body
    log_operation("stop_profile", caller)
    return ProfileState(**await call_engine(server, caller, "stop_profile"))


def _new_file(folder: Path, prefix: str) -> Path:
    """An empty file that did not exist before.

    Raises:
        ApiError: the folder cannot be written to, or has very many profiles.
    """
    for number in range(1, _MAX_FILES):
        path = folder.absolute() / f"{prefix}-{number}.json"
        try:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        except FileExistsError:
            continue
        except OSError as error:
            raise ApiError(400, f"--profile-dir cannot be used: {error.strerror}.") from error
        return path
    raise ApiError(400, f"--profile-dir has {_MAX_FILES - 1} files of this name: remove some.")
