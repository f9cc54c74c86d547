"""Makes the compiled extension for the running interpreter from its prepared parts.

    python -m tools.gpu.extension PACK

All C++ but the bindings is in PACK/libengine.a; these are compiled here, with the Python and the
g++ that this machine has, and with the nanobind in PACK. Nothing is done if the interpreter finds
an extension.
"""

from __future__ import annotations

import importlib
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tools.gpu.records import say
from tools.gpu.tree import ROOT, VERSION

OUTPUT = ROOT / "python/pagemill/_native/_core.so"
# What bindings cost a step is little: a quick build is worth more.
_FLAGS = ("-std=c++20", "-O1", "-fPIC", "-fvisibility=hidden", "-fno-strict-aliasing", "-w")


class BuildError(RuntimeError):
    """A compiler or the linker failed; the message is the end of its output."""


def commands(pack: Path, objects: Path) -> list[list[str]]:
    """The compilations, whose results lie in `objects`."""
    nanobind = pack / "nanobind"
    includes = [f"-I{ROOT}", f"-isystem{sysconfig.get_paths()['include']}"]
    includes += [f"-isystem{nanobind}/include", f"-isystem{nanobind}/ext/robin_map/include"]
    defines = ["-DNDEBUG", f'-DPAGEMILL_VERSION="{VERSION}"']
    sources = [*sorted((ROOT / "cc/bindings").glob("*.cc")), nanobind / "src/nb_combined.cpp"]
    return [
        ["g++", *_FLAGS, *defines, *includes, "-c", str(source), "-o", f"{objects}/{source.stem}.o"]
        for source in sources
    ]


def build(pack: Path, output: Path) -> None:
    """Compile and link `output`.

    Raises:
        BuildError: a command failed.
    """
    objects = output.parent / "objects"
    objects.mkdir(parents=True, exist_ok=True)
    compilations = commands(pack, objects)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(_run, compilations))
    link = ["g++", "-shared", "-o", str(output), *(command[-1] for command in compilations)]
    _run([*link, str(pack / "libengine.a"), "-ldl", "-lpthread", "-lrt", "-Wl,--exclude-libs,ALL"])


def _run(command: Sequence[str]) -> None:
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode:
        raise BuildError(f"{' '.join(command)}\n{result.stderr[-4000:]}")


def main(arguments: list[str]) -> int:
    """Build; the exit status."""
    begun = time.monotonic()
    made = not _is_there()
    if made:
        with tempfile.TemporaryDirectory() as folder:
            partial = Path(folder) / OUTPUT.name
            build(Path(arguments[0]), partial)
            shutil.move(partial, OUTPUT)
    say(what="extension", made=made, seconds=time.monotonic() - begun)
    return 0


def _is_there() -> bool:
    try:
        importlib.import_module("pagemill._native")
    except ImportError:
        return False
    return True


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
