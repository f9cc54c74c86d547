"""One model in the number formats and file formats that the peers load, converted from a GGUF
file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tools.bench.compare.environment import Environment, PeerError, run_logged
from tools.bench.compare.peers.base import DRIVERS
from tools.bench.compare.peers.llama_cpp import tool


class ModelFiles:
    """Files created on demand and kept in `folder`: by llama-quantize, or by transformers.

    They have the values of the given file. A 4-bit model keeps 4-bit quality in bf16, which does
    not affect speed.
    """

    def __init__(
        self, given: Path, folder: Path, environments: Callable[[str], Environment]
    ) -> None:
        """Creates nothing yet. `environments` returns the installed environment of a name."""
        self._given = given
        self._folder = folder / "models"
        self._environments = environments

    def path(self, kind: str) -> Path:
        """Returns the file or folder of that kind: a value of `Peer.models`.

        Raises:
          PeerError: it cannot be created.
        """
        if kind == "given":
            return self._given
        if kind == "folder":
            return self._hugging_face_folder()
        return self._quantized(kind.removeprefix("gguf_").upper())

    def _quantized(self, number_format: str) -> Path:
        made = self._folder / f"{self._given.stem}.{number_format}-requantized.gguf"

        def make(unfinished: Path) -> None:
            llama = self._environments("llama.cpp")
            program = tool(llama, "llama-quantize")
            files = [self._given, unfinished]
            run_logged([program, "--allow-requantize", *files, number_format], llama.log)

        return self._once(made, make)

    def _hugging_face_folder(self) -> Path:
        def make(unfinished: Path) -> None:
            transformers = self._environments("transformers")
            script = DRIVERS / "save_folder.py"
            run_logged([transformers.python, script, self._given, unfinished], transformers.log)

        return self._once(self._folder / f"{self._given.stem}-bf16", make)

    def _once(self, made: Path, make: Callable[[Path], None]) -> Path:
        if not made.exists():
            if not self._given.is_file() or self._given.suffix != ".gguf":
                raise PeerError(f"{self._given} is not a GGUF file")
            self._folder.mkdir(parents=True, exist_ok=True)
            unfinished = made.with_name(f"{made.name}.unfinished")
            make(unfinished)
            unfinished.rename(made)
        return made
