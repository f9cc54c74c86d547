"""Files of tensors that a trainer sends while a model runs: copied, so that the sender's are its
own again, and freed tensor by tensor as others take their places.

    files = SentFiles(Path("/dev/shm/pagemill"), max_bytes)
    received = files.receive("bucket-0.safetensors")   # locations in a file without a name
    files.keep(received)                               # or files.drop(received)

The copies lie in the sender's folder, too: in memory if that is in memory.
"""

from __future__ import annotations

import ctypes
import os
import resource
import stat
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO

from pagemill.tensor.dtypes import tensor_bytes
from pagemill.weights.errors import WeightsError
from pagemill.weights.json_file import MAX_JSON_BYTES
from pagemill.weights.location import TensorLocation
from pagemill.weights.safetensors import read_tensors

_MAX_FILES = 256  # each takes a descriptor of the process
_COPIED_AT_ONCE = 1 << 30
_KEEP_SIZE, _PUNCH_HOLE = 1, 2  # of fallocate(2)


@dataclass(frozen=True, slots=True)
class Received:
    """Tensors of a file that was copied; `file` is the copy, which has no name. Locations name it
    by its descriptor: while a program that is loaded reads it, it stays open."""

    file: BinaryIO
    tensors: Mapping[str, TensorLocation]


class SentFiles:
    """The copies of files that have tensors in use. Not thread-safe."""

    def __init__(self, folder: Path, max_bytes: int) -> None:
        """`max_bytes`: of the tensors of one file.

        Raises:
            WeightsError: `folder` cannot be used.
        """
        self._folder, self._max_bytes = folder, max_bytes
        self._max_files = _most_files()
        self._files: dict[str, BinaryIO] = {}  # by the path in locations
        self._tensors: dict[str, TensorLocation] = {}
        try:
            with self._new_file() as file:
                file.write(bytes(2 * os.sysconf("SC_PAGESIZE")))
                file.flush()
                _free(file, 0, os.sysconf("SC_PAGESIZE"))
        except OSError as error:
            raise WeightsError(
                f"{folder} cannot keep what is sent ({error.strerror}); it has to be a folder that"
                " can be written to, of a file system that frees parts of files, such as /dev/shm"
            ) from error

    @property
    def folder(self) -> Path:
        """Where senders write."""
        return self._folder

    @property
    def tensors(self) -> Mapping[str, TensorLocation]:
        """Those that are kept, by name: the latest of each."""
        return self._tensors

    def receive(self, name: str) -> Received:
        """Copies the safetensors file `name` of the folder. It may be removed or changed
        afterwards.

        Raises:
            WeightsError: it is no plain name, no regular file of the folder, too large or corrupt;
                or too many files are kept, or there is no room for the copy.
        """
        if name in (".", "..") or "/" in name or "\0" in name:
            raise WeightsError(f"{name!r:.200} is no name of a file in {self._folder}")
        return self._receive(self._folder / name, name)

    def receive_path(self, path: Path) -> Received:
        """As `receive`, of a file that was written here.

        Raises:
            WeightsError: as `receive`.
        """
        return self._receive(path, path.name)

    def keep(self, received: Received) -> None:
        """Keeps the tensors, from now on in place of those of the same names, which are freed."""
        replaced = [self._tensors[name] for name in received.tensors if name in self._tensors]
        self._tensors |= received.tensors
        self._files[_path(received.file)] = received.file
        for tensor in replaced:
            size = tensor_bytes(tensor.dtype, tensor.shape)
            _free(self._files[tensor.file], tensor.offset, size)
        used = {tensor.file for tensor in self._tensors.values()}
        for path in self._files.keys() - used:
            self._files.pop(path).close()

    def drop(self, received: Received) -> None:
        """Forgets tensors that are not to be used."""
        received.file.close()

    def clear(self) -> None:
        """Forgets all tensors."""
        self._tensors.clear()
        for file in self._files.values():
            file.close()
        self._files.clear()

    def _receive(self, path: Path, name: str) -> Received:
        if len(self._files) >= self._max_files:
            raise WeightsError(
                f"{self._max_files} files have tensors that are in use: send more tensors in one"
                " file (a larger `bucket_bytes`)"
            )
        try:
            source = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError as error:
            raise WeightsError(f"{name!r:.200} cannot be read: {error.strerror}") from error
        try:
            return self._copy(source, name)
        except OSError as error:
            raise WeightsError(f"{name!r:.200} cannot be copied: {error.strerror}") from error
        finally:
            os.close(source)

    def _copy(self, source: int, name: str) -> Received:
        info = os.fstat(source)
        if not stat.S_ISREG(info.st_mode):
            raise WeightsError(f"{name!r:.200} is no regular file")
        most = self._max_bytes + MAX_JSON_BYTES
        if info.st_size > most:
            raise WeightsError(
                f"{name!r:.200} has {info.st_size} bytes, more than all tensors of the model"
            )
        file = self._new_file()
        try:
            _copy_bytes(source, file.fileno(), info.st_size)
            tensors = read_tensors(file, name)
        except BaseException:
            file.close()
            raise
        path = _path(file)
        return Received(file, {key: replace(at, file=path) for key, at in tensors.items()})

    def _new_file(self) -> BinaryIO:
        return tempfile.TemporaryFile(dir=self._folder)  # noqa: SIM115  (the caller closes it)


def _most_files() -> int:
    """How many copies may be open: they leave most descriptors of the process to others."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MAX_FILES if soft == resource.RLIM_INFINITY else min(_MAX_FILES, soft // 4)


def _path(file: BinaryIO) -> str:
    """A path that the other ranks, processes of the same user, can open, too."""
    return f"/proc/{os.getpid()}/fd/{file.fileno()}"


def _copy_bytes(source: int, target: int, size: int) -> None:
    """Copies at most `size` bytes: fewer if the file is cut meanwhile, more are not there."""
    copied = 0
    while copied < size:
        count = os.sendfile(target, source, copied, min(_COPIED_AT_ONCE, size - copied))
        if count == 0:
            return
        copied += count


def _free(file: BinaryIO, offset: int, size: int) -> None:
    """Returns the whole pages of a part of a file to its file system.

    Raises:
        OSError: the file system cannot.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    arguments = (ctypes.c_int64(offset), ctypes.c_int64(size))
    if libc.fallocate(file.fileno(), _PUNCH_HOLE | _KEEP_SIZE, *arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
