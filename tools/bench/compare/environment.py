"""A virtual environment for each peer, created once."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

_LOG_LINES = 15


class PeerError(Exception):
    """A peer cannot be installed, started or used; the message ends with its own output."""


def tail(log: Path) -> str:
    """Returns the last lines of a log."""
    return "\n".join(log.read_text("utf-8", "replace").splitlines()[-_LOG_LINES:])


def run_logged(argv: Sequence[str | Path], log: Path, folder: Path | None = None) -> None:
    """Runs a command of an installation and appends its output to `log`.

    Raises:
      PeerError: it fails, or the program does not exist.
    """
    with log.open("a") as output:
        output.write(f"$ {' '.join(map(str, argv))}\n")
        output.flush()
        try:
            subprocess.run(
                [str(arg) for arg in argv],
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=folder,
                check=True,
            )
        except (OSError, subprocess.CalledProcessError) as error:
            raise PeerError(f"{error}; {log} ends with\n{tail(log)}") from None


class Environment:
    """A folder with a virtual environment and other files that a peer needs."""

    def __init__(self, folder: Path) -> None:
        """Creates nothing yet."""
        self.folder = folder
        self.log = folder / "install.log"
        self._installed = folder / "installed"

    @property
    def python(self) -> Path:
        """The environment's interpreter."""
        return self.folder / "venv/bin/python"

    def has(self, what: Sequence[str]) -> bool:
        """True if all of this was installed."""
        return self._installed.is_file() and self._installed.read_text() == "\n".join(what)

    def mark(self, what: Sequence[str]) -> None:
        """Records that all of it is installed."""
        self._installed.write_text("\n".join(what))

    def install(self, packages: Sequence[str], unwanted: Sequence[str] = ()) -> None:
        """Creates the environment with these packages, from pip's configured index.

        Raises:
          PeerError: pip fails.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        run_logged([sys.executable, "-m", "venv", "--clear", self.folder / "venv"], self.log)
        self.pip("install", *packages)
        if unwanted:
            self.pip("uninstall", "-y", *unwanted)

    def pip(self, *arguments: str | Path) -> None:
        """Runs the environment's pip.

        Raises:
          PeerError: it fails.
        """
        run_logged([self.python, "-m", "pip", *arguments], self.log)
