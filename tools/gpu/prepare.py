"""Packs what a check on a GPU needs and a machine with a GPU lacks.

    ./bazelw run //tools/gpu:prepare

The pack is one file: the plugin, its conformance program, the engine's library, nanobind and
msgspec, and tiny checkpoints of every family with their references. With the tree's own files it
must stay below what may be carried to such a machine.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from fnmatch import fnmatch
from pathlib import Path

from tools.gpu.tree import ROOT, VERSION, headers_digest

OUTPUT = ".gpu_pack/pack.tar.xz"
LARGEST_BYTES = 44 * 2**20  # of the pack: 64 MiB with the tree's own files
_PROGRAMS = ("plugin.so", "plugin_conformance", "libengine.a")
_PLATFORMS = ("manylinux_2_28_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64")


def parse(arguments: list[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="tools/gpu:prepare", description=__doc__)
    parser.add_argument("--output", type=Path, default=Path(OUTPUT), help="[%(default)s]")
    parser.add_argument("--families", default="*", help="a pattern of names of tiny models")
    parser.add_argument("--python", default="3.12", help="of the machine with the GPU")
    parser.add_argument("--plugin", type=Path, default=_built("PLUGIN"))
    parser.add_argument("--conformance", type=Path, default=_built("CONFORMANCE"))
    parser.add_argument("--engine", type=Path, default=_built("ENGINE"))
    return parser.parse_args(arguments)


def _built(name: str) -> Path | None:
    """What Bazel has built for this program, by its path in the runfiles."""
    path = os.environ.get(f"PAGEMILL_GPU_{name}")
    return None if path is None else ROOT / path


def _sources() -> Path:
    """The source tree: a program that Bazel runs sees only what it depends on."""
    return Path(os.environ.get("BUILD_WORKSPACE_DIRECTORY", ROOT))


def collect(options: argparse.Namespace, folder: Path) -> None:
    """Everything of the pack, in `folder`."""
    from tools.gpu import tiny_models

    built = (options.plugin, options.conformance, options.engine)
    for name, path in zip(_PROGRAMS, built, strict=True):
        if path is not None:
            shutil.copy(path, folder / name)
    nanobind = Path(str(importlib.import_module("nanobind").__file__)).parent
    for part in ("include", "src", "ext"):
        shutil.copytree(nanobind / part, folder / "nanobind" / part)
    _add_msgspec(options.python, folder / "site")
    names = [name for name in tiny_models.NAMES if fnmatch(name, options.families)]
    for line in tiny_models.make_all(names, folder / "tiny"):
        print(line, flush=True)
    made = sorted(path.name for path in (folder / "tiny").iterdir())
    described = {
        "version": VERSION,
        "headers": headers_digest(_sources()),
        "python": options.python,
        "tiny": made,
    }
    (folder / "pack.json").write_text(json.dumps(described, indent=2) + "\n")


def _add_msgspec(python: str, folder: Path) -> None:
    """The wheel of the lock file for another Python."""
    lock = (ROOT / "third_party/python/server.lock").read_text()
    found = re.search(r"^msgspec==\S+", lock, re.MULTILINE)
    assert found is not None, "third_party/python/server.lock has no msgspec"
    platforms = [word for each in _PLATFORMS for word in ("--platform", each)]
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-compile"]
    command += ["--target", str(folder), "--only-binary=:all:", "--implementation", "cp"]
    command += ["--python-version", python, *platforms, found[0]]
    subprocess.run(command, check=True)


def write(folder: Path, output: Path) -> int:
    """Compress `folder`; returns the size of the file.

    Raises:
        SystemExit: it is too large to be carried.
    """
    output.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(output, "w:xz", preset=3) as archive:
        archive.add(folder, arcname=".")
    size = output.stat().st_size
    if size > LARGEST_BYTES:
        raise SystemExit(
            f"{output} has {size / 2**20:.1f} MiB, more than the {LARGEST_BYTES / 2**20:.0f} MiB"
            " that can be carried: leave out models with --families"
        )
    return size


def main(arguments: list[str]) -> int:
    """Make the pack; the exit status."""
    options = parse(arguments)
    with tempfile.TemporaryDirectory() as name:
        collect(options, Path(name))
        size = write(Path(name), options.output)
    print(f"{options.output}: {size / 2**20:.1f} MiB")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
