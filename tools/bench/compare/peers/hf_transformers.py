"""transformers: all requests of a run as one static batch, in bf16."""

from __future__ import annotations

from tools.bench.compare.environment import Environment
from tools.bench.compare.peers.base import DRIVERS, Command, Start

_PACKAGES = ("transformers==5.23.0", "torch==2.13.0", "accelerate", "gguf")


class Transformers:
    """`generate()` of a causal model."""

    kind = "driver"
    environment = "transformers"
    models = {"bf16": "folder"}
    concurrent = True

    def install(self, environment: Environment) -> None:
        """Raises PeerError if it cannot be installed."""
        if not environment.has(_PACKAGES):
            environment.install(_PACKAGES)
            environment.mark(_PACKAGES)

    def command(self, environment: Environment, start: Start) -> Command:
        """Returns how to start it."""
        driver = str(DRIVERS / "transformers_driver.py")
        return Command((str(environment.python), driver, str(start.model), str(start.threads)))
