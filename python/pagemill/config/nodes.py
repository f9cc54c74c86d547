"""Options of a model that several machines (nodes) run together: docs/several_machines.md."""

from dataclasses import dataclass

from pagemill.config.fields import ConfigError, Range, check, option


@dataclass(frozen=True, slots=True)
class NodeConfig:
    """Several machines: how many there are, and how they find one another."""

    nnodes: int = option(
        1,
        "Number of machines (nodes) that run the model together, each with an equal part of the"
        " ranks of --tensor-parallel-size and --pipeline-parallel-size. Start `pagemill serve` with"
        " the same options on each, except --node-rank. Stages of a pipeline exchange far less data"
        " than ranks that divide each layer.",
        unit="nodes",
        allowed=Range(1, 64),
    )
    node_rank: int = option(
        0,
        "Number of this machine. Node 0 serves HTTP and has the first ranks; the others only"
        " compute.",
        allowed=Range(0, 63),
    )
    master_addr: str = option(
        "127.0.0.1",
        "Address of node 0 that the other nodes can reach: an IP address, or a name that this"
        " machine knows. Other than at a loopback address, --node-secret-file is needed.",
    )
    master_port: int = option(
        29501, "TCP port where node 0 waits for the other nodes.", allowed=Range(1, 65535)
    )
    node_secret_file: str = option(
        "",
        "File with a secret that all nodes share, or all machines with engines of one server, at"
        " least 16 bytes: `openssl rand -hex 32`. It keeps others out; data between machines is"
        " sent as it is, so their network must be trusted.",
    )

    def __post_init__(self) -> None:
        """Checks each field; see `check`."""
        check(self)
        if self.node_rank >= self.nnodes:
            raise ConfigError(
                f"--node-rank {self.node_rank} needs --nnodes of at least {self.node_rank + 1}:"
                " nodes are numbered from 0"
            )
