"""The machines (nodes) that run a model together, and how their ranks find one another.

nodes = Nodes.of(config, ranks, arguments, num_blocks)       # None on a single machine
world = nodes.join(rank, segment)                            # each rank, in its own process
wait_for_all(world, limit_s=600.0)
world.number                                                 # blocks that fit on all nodes
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pagemill
from pagemill import _native
from pagemill.config import ConfigError, EngineConfig
from pagemill.engine.meeting_place import MeetingPlace
from pagemill.engine.model_digest import model_digest
from pagemill.runner.build import BuiltModel

# Arguments of `_native.ExecutorOptions` that may differ between nodes.
_OWN_ARGUMENTS = ("num_blocks", "num_threads", "pack_cache_folder", "place_memory")


@dataclass(frozen=True, slots=True)
class Nodes:
    """What a rank needs to join those of all nodes; plain data, for other processes."""

    master: str
    """IP address and port of rank 0."""
    secret: str = field(repr=False)
    tensor: int
    pipeline: int
    num_nodes: int
    model: str
    """What the ranks' programs and files are, as hexadecimal digits of a digest."""
    options: str
    """Likewise the options that all nodes must have in common."""
    number: int
    """Blocks of the KV cache for which this node has memory."""

    @classmethod
    def of(
        cls,
        config: EngineConfig,
        ranks: Sequence[BuiltModel],
        arguments: Mapping[str, Any],
        num_blocks: int,
    ) -> Nodes | None:
        """Those of the configuration; None if there is one. `ranks` are all of them, `arguments`
        those of their `_native.ExecutorOptions`.

        Raises:
            ConfigError: the address or the secret cannot be used.
        """
        if config.nodes.nnodes == 1:
            return None
        executor, nodes = config.executor, config.nodes
        place = MeetingPlace.of(
            "--master-addr", nodes.master_addr, nodes.master_port, nodes.node_secret_file
        )
        return cls(
            master=place.address,
            secret=place.secret,
            tensor=executor.tensor_parallel_size,
            pipeline=executor.pipeline_parallel_size,
            num_nodes=config.nodes.nnodes,
            model=model_digest(ranks),
            options=_options_digest(config, ranks[0], arguments),
            number=num_blocks,
        )

    @property
    def shares_memory(self) -> bool:
        """Whether a node has whole tensor-parallel groups of several ranks."""
        return self.tensor > 1 and self.local_ranks % self.tensor == 0

    @property
    def local_ranks(self) -> int:
        """The number of ranks of a node."""
        return self.tensor * self.pipeline // self.num_nodes

    def segment(self) -> _native.SharedSegment | None:
        """New memory that the ranks of a node share; None if they need none."""
        if not self.shares_memory:
            return None
        return _native.SharedSegment(self.tensor, pipeline=self.local_ranks // self.tensor)

    def join(self, rank: int, segment: _native.SharedSegment | None) -> _native.NodesWorld:
        """The place of `rank`, which must wait for all others.

        Raises:
            ConfigError: rank 0 cannot listen, or the secret is too short.
        """
        try:
            return _native.NodesWorld(
                rank,
                segment,
                master=self.master,
                secret=self.secret,
                tensor=self.tensor,
                pipeline=self.pipeline,
                num_nodes=self.num_nodes,
                version=pagemill.__version__,
                model=bytes.fromhex(self.model),
                options=bytes.fromhex(self.options),
                number=self.number,
            )
        except _native.StatusError as error:
            raise ConfigError(
                f"--master-addr, --master-port and --node-secret-file: {error.message}"
            ) from error


def require_nodes(config: EngineConfig) -> None:
    """Refuses what ranks of several machines cannot do yet.

    Raises:
        ConfigError: with the name of the option.
    """
    if config.nodes.nnodes == 1:
        return
    drafts = config.speculation
    refused = {
        "--executor torch": config.executor.executor != "native",
        f"--device {config.executor.device}": config.executor.device not in ("auto", "cpu"),
        "--speculative-config with a draft model or head": drafts.max_tokens > 0
        and drafts.ngram is None
        and drafts.suffix is None,
        config.lora.flags: config.lora.enabled,
        "--kv-offloading-bytes, --kv-offloading-disk-path, --kv-connector-path and"
        " --kv-shared-memory-bytes": config.kv_tiers.enabled,
        "--weight-transfer-dir": config.model.weight_transfer_dir is not None,
    }
    for names, given in refused.items():
        if given:
            raise ConfigError(
                f"{names} cannot be used with --nnodes {config.nodes.nnodes}: leave it out, or run"
                " the model on one machine"
            )


def _options_digest(config: EngineConfig, built: BuiltModel, arguments: Mapping[str, Any]) -> str:
    """What all nodes must have in common besides the model."""
    common = {name: value for name, value in arguments.items() if name not in _OWN_ARGUMENTS}
    common |= {
        "nodes": config.nodes.nnodes,
        "tensor": config.executor.tensor_parallel_size,
        "pipeline": config.executor.pipeline_parallel_size,
        "max_model_len": built.max_model_len,
        "byte_order": sys.byteorder,
    }
    return hashlib.sha256(json.dumps(common, sort_keys=True).encode()).hexdigest()
