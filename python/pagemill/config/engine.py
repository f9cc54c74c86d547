"""The whole configuration of an engine, and of a server around one."""

from dataclasses import dataclass, field, replace

from pagemill.config.cache import CacheConfig
from pagemill.config.executor import ExecutorConfig
from pagemill.config.fields import ConfigError
from pagemill.config.kv_tiers import KvTierConfig
from pagemill.config.lora import LoraConfig
from pagemill.config.media import MediaConfig
from pagemill.config.model import ModelConfig
from pagemill.config.nodes import NodeConfig
from pagemill.config.observe import MetricsConfig, ObserveConfig, TracesConfig
from pagemill.config.scheduler import SchedulerConfig
from pagemill.config.server import ServerConfig
from pagemill.config.speculation import SpeculationConfig
from pagemill.config.watermark import WatermarkConfig


@dataclass(frozen=True, slots=True)
class MachineShare:
    """Number `index` of `count` equal engines that divide the cores, memory and devices of this
    machine among them."""

    index: int = 0
    count: int = 1
    memory_bytes: int | None = None
    """Its part of the host's memory that was available before any of them started; None: what is
    available now."""
    first: int = 0
    """The number, among all engines of the server, of the first one on this machine."""

    @property
    def engine(self) -> int:
        """Its number among all engines of the server."""
        return self.first + self.index


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """All options of one engine.

    `build(EngineConfig, {"model": "model.gguf", "max_model_len": 4096})` makes one from flat names.
    """

    model: ModelConfig = field(default_factory=ModelConfig)
    cache: CacheConfig = field(default_factory=CacheConfig)
    kv_tiers: KvTierConfig = field(default_factory=KvTierConfig)
    scheduler: SchedulerConfig = field(default_factory=SchedulerConfig)
    speculation: SpeculationConfig = field(default_factory=SpeculationConfig)
    watermark: WatermarkConfig = field(default_factory=WatermarkConfig)
    lora: LoraConfig = field(default_factory=LoraConfig)
    executor: ExecutorConfig = field(default_factory=ExecutorConfig)
    nodes: NodeConfig = field(default_factory=NodeConfig)
    refused_media: frozenset[str] = frozenset()
    """Kinds of media that no prompt has (`for_media`)."""
    encoders_apart: bool = False
    """Whether other servers encode the media of prompts (`for_media`)."""
    share: MachineShare = field(default_factory=MachineShare)
    """What it has of this machine (`for_share`)."""

    def __post_init__(self) -> None:
        """Checks that ranks can be distributed over nodes, and that drafts fit in a step.

        Raises:
          ConfigError: they cannot.
        """
        drafts, tokens = self.speculation.max_tokens, self.scheduler.max_num_batched_tokens
        if self.speculation.parallel and drafts >= tokens:
            raise ConfigError(
                f"--speculative-config makes {drafts} drafts in one pass, which do not fit in steps"
                f" of {tokens} tokens: set --max-num-batched-tokens {drafts + 1} or more"
            )
        nodes, ranks = self.nodes.nnodes, self.executor.ranks
        tensor, pipeline = (
            self.executor.tensor_parallel_size,
            self.executor.pipeline_parallel_size,
        )
        if ranks % nodes:
            raise ConfigError(
                f"--nnodes {nodes} needs a multiple of {nodes} ranks: --tensor-parallel-size"
                f" {tensor} times --pipeline-parallel-size {pipeline} is {ranks}"
            )
        if tensor % (ranks // nodes) and ranks // nodes % tensor:
            raise ConfigError(
                f"--nnodes {nodes} would give a node {ranks // nodes} of {ranks} ranks, which is"
                f" neither a multiple nor a divisor of --tensor-parallel-size {tensor}"
            )

    @property
    def local_ranks(self) -> range:
        """The ranks that this machine has."""
        count = self.executor.ranks // self.nodes.nnodes
        return range(self.nodes.node_rank * count, (self.nodes.node_rank + 1) * count)


@dataclass(frozen=True, slots=True)
class OfflineConfig:
    """All options of an `LLM`."""

    engine: EngineConfig = field(default_factory=EngineConfig)
    media: MediaConfig = field(default_factory=MediaConfig)


@dataclass(frozen=True, slots=True)
class ServeConfig:
    """All options of `pagemill serve`."""

    engine: EngineConfig = field(default_factory=EngineConfig)
    server: ServerConfig = field(default_factory=ServerConfig)
    observe: ObserveConfig = field(default_factory=ObserveConfig)
    metrics: MetricsConfig = field(default_factory=MetricsConfig)
    traces: TracesConfig = field(default_factory=TracesConfig)

    def __post_init__(self) -> None:
        """Checks what options of engine and server say together.

        Raises:
          ConfigError: they exclude each other.
        """
        engines = self.server.data_parallel
        several = engines.data_parallel_size > 1 or engines.spans_machines
        if several and self.engine.nodes.nnodes > 1:
            raise ConfigError(
                "--nnodes needs --data-parallel-size 1: put servers with one engine each behind"
                " `pagemill route`"
            )
        if engines.data_parallel_size > 1 and self.engine.cache.max_kv_events:
            raise ConfigError(
                "--max-kv-events needs --data-parallel-size 1: a router chooses servers by the"
                " cache of their one engine"
            )
        if several and self.engine.model.weight_transfer_dir:
            raise ConfigError(
                "--weight-transfer-dir needs --data-parallel-size 1: an engine that is started"
                " again would not have what was sent. Run one engine, or send /update_weights the"
                " `path` of a checkpoint"
            )


def for_share(engine: EngineConfig, share: MachineShare) -> EngineConfig:
    """`engine` as one of several: a file of a KV tier and a port for KV are its own."""
    tiers = engine.kv_tiers
    if tiers.kv_offloading_disk_path:
        path = f"{tiers.kv_offloading_disk_path}.{share.engine}"
        tiers = replace(tiers, kv_offloading_disk_path=path)
    host, colon, port = tiers.kv_transfer_listen.rpartition(":")
    if colon and port.isdecimal():
        listen = f"{host}:{int(port) + share.index}"
        tiers = replace(tiers, kv_transfer_listen=listen)
    return replace(engine, kv_tiers=tiers, share=share)


def for_media(engine: EngineConfig, media: MediaConfig) -> EngineConfig:
    """`engine`, without an encoder if it reads only what `media` refuses, or if other servers have
    them.

    Raises:
      ConfigError: its options are those of encoders, or of a model without media.
    """
    if not media.encoder_servers:
        return replace(engine, refused_media=media.refused_kinds)
    model = engine.model
    if model.mm_encoder_only or model.language_model_only or model.enable_prompt_embeds:
        raise ConfigError(
            "--encoder-urls: media are encoded by other servers; leave out --mm-encoder-only,"
            " --language-model-only and --enable-prompt-embeds"
        )
    if media.mm_processor_kwargs or media.media_io_kwargs:
        raise ConfigError(
            "--encoder-urls: other servers read files; give --mm-processor-kwargs and"
            " --media-io-kwargs to these"
        )
    return replace(engine, refused_media=media.refused_kinds, encoders_apart=True)
