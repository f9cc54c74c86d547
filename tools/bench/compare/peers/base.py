"""What a peer is to the comparison. To add one: a module beside this one, and a row in table.py."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

from tools.bench.compare.environment import Environment

# How its process is talked to. "http": a server with /v1/completions. "driver": a program that
# reads jobs from its standard input, as drivers/driver_loop.py has it.
Kind = Literal["http", "driver"]

DRIVERS = Path(__file__).absolute().parent.parent / "drivers"


@dataclass(frozen=True, slots=True)
class Start:
    """What a process is to be started with."""

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
    # Number format -> what it loads for it: a method of formats.ModelFiles.
    models: Mapping[str, str]
    # Takes it several requests at the same time?
    concurrent: bool

    def install(self, environment: Environment) -> None:
        """Makes the peer's environment, where it is not there already.

        Raises:
          PeerError: it cannot be made.
        """
        ...

    def command(self, environment: Environment, start: Start) -> Command:
        """Returns how to start it."""
        ...
