"""Builds the compiled extension with plain g++, for machines without Bazel.

Which sources: every `cc/**/*.cc` but

- files used only by tests: `*_test.cc`, `*_benchmark.cc`, `fake_*.cc`, and files that include,
  directly or indirectly, a `*conformance.h`;
- the folders that no binding uses (`capi`, `examples`, `sim`);
- the kernels of other CPUs: a file named `<op>_<isa>.cc` is compiled with the flags that
  `tools/bazel/isa.bzl` gives for the instruction set, and only on its CPU.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_LEFT_OUT_NAMES = ("*_test.cc", "*_benchmark.cc", "fake_*.cc")
_LEFT_OUT_FOLDERS = ("capi", "examples", "sim")
_INCLUDE = re.compile(r'^#include "(cc/[^"]+)"', re.MULTILINE)
_FLAGS = ["-std=c++20", "-O2", "-fPIC", "-fvisibility=hidden", "-fno-strict-aliasing"]


class BuildError(RuntimeError):
    """A compiler or the linker failed; the message is its output."""


@dataclass(frozen=True, slots=True)
class IsaTable:
    """`flags` of each instruction set; `cpu`: the CPU that has it ("" = any)."""

    flags: dict[str, list[str]]
    cpu: dict[str, str]
    kernel_flags: list[str]

    @classmethod
    def read(cls, root: Path) -> IsaTable:
        """The table of `tools/bazel/isa.bzl`, whose assignments are Python, too."""
        names: dict[str, Any] = {}
        exec((root / "tools/bazel/isa.bzl").read_text(), {"__builtins__": {}}, names)
        isas = names["ISAS"]
        return cls(
            {name: flags for name, (_, flags) in isas.items()},
            {name: cpu for name, (cpu, _) in isas.items()},
            names["KERNEL_COPTS"],
        )

    def of_file(self, path: Path) -> str:
        """The instruction set that a file's name ends in; "portable" if it names none."""
        found = [name for name in self.flags if path.stem.endswith("_" + name)]
        return max(found, key=len, default="portable")


def sources(root: Path, isas: IsaTable, machine: str) -> list[Path]:
    """The files to compile on `machine`, by this module's rule."""
    found: list[Path] = []
    for path in sorted((root / "cc").rglob("*.cc")):
        if path.relative_to(root / "cc").parts[0] in _LEFT_OUT_FOLDERS:
            continue
        if any(path.match(pattern) for pattern in _LEFT_OUT_NAMES):
            continue
        if isas.cpu[isas.of_file(path)] not in ("", machine):
            continue
        if not any(name.endswith("conformance.h") for name in _included(root, path)):
            found.append(path)
    return found


def _included(root: Path, path: Path) -> set[str]:
    """The in-tree headers that `path` includes, directly or indirectly, as paths from the root."""
    seen: set[str] = set()
    frontier = [path]
    while frontier:
        for name in _INCLUDE.findall(frontier.pop().read_text()):
            if name not in seen and (root / name).exists():
                seen.add(name)
                frontier.append(root / name)
    return seen


def build(root: Path, output: Path, build_folder: Path, *, jobs: int | None = None) -> None:
    """Compile and link `output` (`_core.so`) for the running interpreter.

    Raises:
        BuildError: a command failed.
        ImportError: nanobind is not installed.
    """
    import nanobind

    isas = IsaTable.read(root)
    nanobind_root = Path(nanobind.__file__).parent
    includes = [f"-isystem{sysconfig.get_paths()['include']}", f"-isystem{nanobind_root}/include"]
    version = _version(root)
    commands: list[list[str]] = []
    objects: list[str] = []
    for path in sources(root, isas, platform.machine()):
        object_file = build_folder / (str(path.relative_to(root)).replace("/", ".") + ".o")
        objects.append(str(object_file))
        flags = [*_FLAGS, *isas.flags[isas.of_file(path)]]
        if path.is_relative_to(root / "cc/ops"):
            flags += isas.kernel_flags
        flags += [f"-I{root}", *includes, f'-DPAGEMILL_VERSION="{version}"']
        commands.append(["g++", *flags, "-c", str(path), "-o", str(object_file)])
    nanobind_object = str(build_folder / "nanobind.o")
    combined = str(nanobind_root / "src/nb_combined.cpp")
    robin_map = f"-I{nanobind_root}/ext/robin_map/include"
    commands.append(
        ["g++", *_FLAGS, "-DNDEBUG", *includes, robin_map, "-c", combined, "-o", nanobind_object]
    )
    build_folder.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(jobs or os.cpu_count()) as pool:
        list(pool.map(_run, commands))
    partial = build_folder / "_core.so"
    link = ["g++", "-shared", "-o", str(partial), *objects, nanobind_object]
    _run([*link, "-lpthread", "-Wl,--exclude-libs,ALL"])
    shutil.move(partial, output)  # the build folder may be on another file system


def _version(root: Path) -> str:
    names: dict[str, Any] = {}
    exec((root / "version.bzl").read_text(), {"__builtins__": {}}, names)
    return names["VERSION"]


def _run(command: list[str]) -> None:
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode:
        raise BuildError(f"{' '.join(command)}\n{result.stderr[-4000:]}")
