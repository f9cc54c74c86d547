"""llama.cpp: its server, and its own benchmark; built from the source inside a PyPI package."""

from __future__ import annotations

import sys
import tarfile
from pathlib import Path

from tools.bench.compare.environment import Environment, PeerError, run_logged
from tools.bench.compare.peers.base import DRIVERS, Command, Start

_PACKAGE = "llama_cpp_python"
_VERSION = "0.3.36"
_TOOLS = ("llama-server", "llama-bench", "llama-quantize")
_OFF = ("TESTS", "EXAMPLES", "APP", "UI")
_MODELS = {"bf16": "gguf_bf16", "q8_0": "gguf_q8_0", "given": "given"}
# The number of concurrent requests, and the longest, in the workloads.
_SLOTS = 32
_SLOT_TOKENS = 1280

# GCC 12's _tile_loadconfig declares that it reads 8 of the 64 bytes, so the stores to the others
# are removed: every AMX path crashes. The barrier keeps the stores.
_AMX_FILE = "ggml/src/ggml-cpu/amx/mmq.cpp"
_AMX_LOAD = "    _tile_loadconfig(&tc);"
_AMX_BARRIER = '    __asm__ volatile("" ::: "memory");\n'


def tool(environment: Environment, name: str) -> Path:
    """Returns the path of one of the programs."""
    return environment.folder / "build/bin" / name


def install_llama_cpp(environment: Environment) -> None:
    """Builds the programs with this machine's instructions; takes some minutes.

    Raises:
      PeerError: a step fails.
    """
    what = [_PACKAGE, _VERSION]
    if environment.has(what):
        return
    environment.install(["cmake", "ninja"])
    folder = environment.folder
    package = f"{_PACKAGE.replace('_', '-')}=={_VERSION}"
    environment.pip("download", "--no-deps", f"--no-binary={_PACKAGE}", package, "-d", folder)
    with tarfile.open(folder / f"{_PACKAGE}-{_VERSION}.tar.gz") as archive:
        archive.extractall(folder, filter="data")
    source = folder / f"{_PACKAGE}-{_VERSION}/vendor/llama.cpp"
    _mend_amx(source / _AMX_FILE)
    scripts = environment.python.parent
    settings = ["-DCMAKE_BUILD_TYPE=Release", "-DBUILD_SHARED_LIBS=OFF", "-DGGML_NATIVE=ON"]
    settings += [f"-DLLAMA_BUILD_{name}=OFF" for name in _OFF]
    settings += ["-DLLAMA_USE_PREBUILT_UI=OFF", "-DLLAMA_OPENSSL=OFF"]
    settings += [f"-DCMAKE_MAKE_PROGRAM={scripts / 'ninja'}"]
    build = folder / "build"
    run_logged(
        [scripts / "cmake", "-G", "Ninja", "-S", source, "-B", build, *settings], environment.log
    )
    run_logged([scripts / "cmake", "--build", build, "--target", *_TOOLS], environment.log)
    environment.mark(what)


def _mend_amx(file: Path) -> None:
    text = file.read_text()
    if _AMX_LOAD not in text:
        raise PeerError(f"{file} is not as it was in {_PACKAGE} {_VERSION}")
    file.write_text(text.replace(_AMX_LOAD, _AMX_BARRIER + _AMX_LOAD))


class LlamaServer:
    """llama-server, one slot for each request of the largest workload."""

    kind = "http"
    environment = "llama.cpp"
    models = _MODELS
    concurrent = True

    def install(self, environment: Environment) -> None:
        """Raises PeerError if it cannot be built."""
        install_llama_cpp(environment)

    def command(self, environment: Environment, start: Start) -> Command:
        """Returns how to start it."""
        options = {
            "model": start.model,
            "port": start.port,
            "threads": start.threads,
            "parallel": _SLOTS,
            "ctx-size": _SLOTS * _SLOT_TOKENS,
        }
        flags = [f"{word}" for name, value in options.items() for word in (f"--{name}", value)]
        return Command((str(tool(environment, "llama-server")), *flags))


class LlamaBench:
    """llama-bench: no server, one request at a time."""

    kind = "driver"
    environment = "llama.cpp"
    models = _MODELS
    concurrent = False

    def install(self, environment: Environment) -> None:
        """Raises PeerError if it cannot be built."""
        install_llama_cpp(environment)

    def command(self, environment: Environment, start: Start) -> Command:
        """Returns how to start it."""
        program = str(tool(environment, "llama-bench"))
        driver = str(DRIVERS / "llama_bench_driver.py")
        return Command((sys.executable, driver, program, str(start.model), str(start.threads)))
