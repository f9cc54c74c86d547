"""Pagemill's server, of the tree or package that this program runs in."""

from __future__ import annotations

import sys

from tools.bench.compare.environment import Environment
from tools.bench.compare.peers.base import Command, Start


class Pagemill:
    """`pagemill serve` with its defaults."""

    kind = "http"
    environment = "pagemill"
    models = {"bf16": "folder", "q8_0": "gguf_q8_0", "given": "given"}
    concurrent = True
    flags: tuple[str, ...] = ()

    def install(self, environment: Environment) -> None:
        """Does nothing: it is installed already."""

    def command(self, environment: Environment, start: Start) -> Command:
        """Returns how to start it."""
        options = {"port": start.port, "threads": start.threads, "log-level": "warning"}
        flags = [f"--{name}={value}" for name, value in options.items()]
        python = (sys.executable, "-P", "-m", "pagemill.cli")
        command = (*python, "serve", str(start.model), *flags, *self.flags)
        return Command(command, ready_path="/ready")


class PagemillInt8(Pagemill):
    """With activations of 8 bits in every block, as llama.cpp has them."""

    models = {"q8_0": "gguf_q8_0", "given": "given"}
    flags = ("--activation-dtype=int8",)
