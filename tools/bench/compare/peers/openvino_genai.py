"""OpenVINO GenAI: its continuous batching pipeline, which loads GGUF files."""

from __future__ import annotations

from tools.bench.compare.environment import Environment
from tools.bench.compare.peers.base import DRIVERS, Command, Start

_PACKAGES = ("openvino-genai==2026.4.1.0", "numpy")


class OpenVino:
    """`ContinuousBatchingPipeline`, f16 files computed in bf16."""

    kind = "driver"
    environment = "openvino"
    models = {"bf16": "gguf_f16", "q8_0": "gguf_q8_0"}
    concurrent = True

    def install(self, environment: Environment) -> None:
        """Raises PeerError if it cannot be installed."""
        if not environment.has(_PACKAGES):
            environment.install(_PACKAGES)
            environment.mark(_PACKAGES)

    def command(self, environment: Environment, start: Start) -> Command:
        """Returns how to start it."""
        driver = str(DRIVERS / "openvino_driver.py")
        return Command((str(environment.python), driver, str(start.model), str(start.threads)))
