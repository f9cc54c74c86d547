"""The interface of a peer. To add one, add a module beside this one and an entry in table.py."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

from tools.bench.compare.environment import Environment

# The protocol of its process. "http": a server with /v1/completions. "driver": a program that reads
# jobs from its standard input, see drivers/driver_loop.py.
Kind = Literal["http", "driver"]

DRIVERS = Path(__file__).absolute().parent.parent / "drivers"


@dataclass(frozen=True, slots=True)
class Start:
    """The arguments for starting a process."""

    model: Path
    threads: int
    port: int  # of a server, on 127.0.0.1


@dataclass(frozen=True, slots=True)
class Command:
    """How to start a peer's process."""

    argv: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict[str, str])  # added to this one's
    ready_path: str = "/health"  # answers 200 once a server can take requests


class Peer(Protocol):
    """One way to run a model."""

    kind: Kind
    # Name of the environment: two ways to run one package share it.
    environment: str
    # Number format -> the kind of file that it loads: a method of formats.ModelFiles.
    models: Mapping[str, str]
    # True if it accepts several requests at the same time.
    concurrent: bool

    def install(self, environment: Environment) -> None:
        """Creates the peer's environment unless it exists.

        Raises:
          PeerError: it cannot be created.
        """
        ...

    def command(self, environment: Environment, start: Start) -> Command:
        """Returns how to start it."""
        ...
