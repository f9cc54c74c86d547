"""The whole configuration of an engine, and of a server around one."""

from dataclasses import dataclass, field, replace

from pagemill.config.cache import CacheConfig
from pagemill.config.executor import ExecutorConfig
from pagemill.config.kv_tiers import KvTierConfig
from pagemill.config.lora import LoraConfig
from pagemill.config.media import MediaConfig
from pagemill.config.model import ModelConfig
from pagemill.config.observe import MetricsConfig, ObserveConfig, TracesConfig
from pagemill.config.scheduler import SchedulerConfig
from pagemill.config.server import ServerConfig
from pagemill.config.speculation import SpeculationConfig


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
    lora: LoraConfig = field(default_factory=LoraConfig)
    executor: ExecutorConfig = field(default_factory=ExecutorConfig)
    refused_media: frozenset[str] = frozenset()
    """Kinds of media that no prompt has (`for_media`)."""


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


def for_media(engine: EngineConfig, media: MediaConfig) -> EngineConfig:
    """`engine`, without an encoder if it reads only what `media` refuses."""
    return replace(engine, refused_media=media.refused_kinds)
