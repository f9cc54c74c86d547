"""Options of several engines of one server, on one machine or several: docs/operations.md."""

from dataclasses import dataclass

from pagemill.config.fields import ConfigError, Range, check, option

_MAX_ENGINES = 64


@dataclass(frozen=True, slots=True)
class DataParallelConfig:
    """Several engines: how many there are, and on which machines."""

    data_parallel_size: int = option(
        1,
        "Engines, each in a process of its own as with --isolate-engine, with a KV cache and an"
        " equal share of the cores and of the memory, or with devices of its own: as many as it has"
        " ranks. A request goes to the engine that has the longest prefix of its prompt, or to the"
        " least loaded one, as do all prompts with media. For many requests that are small for the"
        " machine.",
        unit="engines",
        allowed=Range(1, _MAX_ENGINES),
    )
    data_parallel_size_local: int | None = option(
        None,
        "Of these engines, those on this machine; the others are on machines that run `pagemill"
        " serve --headless` (docs/several_machines.md). 0 = this machine only serves HTTP. Default:"
        " all, with --headless all from --data-parallel-start-rank on.",
        unit="engines",
        allowed=Range(0, _MAX_ENGINES),
    )
    data_parallel_start_rank: int = option(
        0,
        "With --headless, the number of the first engine on this machine. Those of the machine that"
        " serves HTTP are the first.",
        allowed=Range(0, _MAX_ENGINES - 1),
    )
    data_parallel_address: str = option(
        "127.0.0.1",
        "Address of the machine that serves HTTP, where engines of other machines join it: an IP"
        " address, or a name that this machine knows. Other than at a loopback address,"
        " --node-secret-file is needed.",
    )
    data_parallel_rpc_port: int = option(
        29550, "TCP port where engines of other machines join.", allowed=Range(1, 65535)
    )
    headless: bool = option(
        False,
        "Run engines of a server that is on another machine, at --data-parallel-address, and no"
        " HTTP.",
    )

    def __post_init__(self) -> None:
        """Checks each field; see `check`.

        Raises:
          ConfigError: there are not so many engines, or none for this machine.
        """
        check(self)
        if self.data_parallel_start_rank and not self.headless:
            raise ConfigError(
                "--data-parallel-start-rank needs --headless: the machine that serves HTTP has the"
                " first engines"
            )
        engines = self.local_engines
        if engines.stop > self.data_parallel_size:
            raise ConfigError(
                f"--data-parallel-size {self.data_parallel_size} is less than"
                f" {engines.stop}: --data-parallel-start-rank {engines.start} and"
                f" --data-parallel-size-local {len(engines)}"
            )
        if self.headless and not engines:
            raise ConfigError(
                "--headless needs engines of its own: --data-parallel-size-local of at least 1, and"
                f" --data-parallel-start-rank below {self.data_parallel_size}"
            )

    @property
    def local_engines(self) -> range:
        """The numbers of the engines on this machine."""
        first, local = self.data_parallel_start_rank, self.data_parallel_size_local
        return range(first, self.data_parallel_size if local is None else first + local)

    @property
    def spans_machines(self) -> bool:
        """Whether engines are on other machines than the one that serves HTTP."""
        return self.headless or len(self.local_engines) < self.data_parallel_size
