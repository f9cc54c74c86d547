"""Configuration: frozen dataclasses that define flags, YAML, help and docs.

from pagemill.config import EngineConfig, build

config = build(EngineConfig, {"model": "model.gguf", "max-model-len": "4k"})
config.scheduler.max_num_seqs
"""

from pagemill.config.batches import BatchApiConfig
from pagemill.config.cache import CacheConfig
from pagemill.config.content_log import ContentLogConfig
from pagemill.config.engine import (
    EngineConfig,
    MachineShare,
    OfflineConfig,
    ServeConfig,
    for_media,
    for_share,
)
from pagemill.config.env import Environment, read_environment
from pagemill.config.executor import ExecutorConfig
from pagemill.config.fields import ConfigError, Range, build, check, flatten, leaves, option
from pagemill.config.http import ConnectionConfig, OriginConfig, TlsConfig
from pagemill.config.kv_tiers import KvTierConfig
from pagemill.config.media import MediaConfig
from pagemill.config.model import ModelConfig
from pagemill.config.nodes import NodeConfig
from pagemill.config.observe import MetricsConfig, ObserveConfig, TracesConfig
from pagemill.config.route import RouteConfig, RouterConfig
from pagemill.config.sampling import SamplingConfig
from pagemill.config.scheduler import SchedulerConfig
from pagemill.config.server import ServerConfig
from pagemill.config.speculation import (
    HeadDrafts,
    HeadFiles,
    ModelDrafts,
    NgramDrafts,
    SpeculationConfig,
    SuffixDrafts,
)
from pagemill.config.watermark import WatermarkConfig

__all__ = [
    "BatchApiConfig",
    "CacheConfig",
    "ConfigError",
    "ConnectionConfig",
    "ContentLogConfig",
    "EngineConfig",
    "Environment",
    "ExecutorConfig",
    "HeadDrafts",
    "HeadFiles",
    "KvTierConfig",
    "MachineShare",
    "MediaConfig",
    "MetricsConfig",
    "ModelConfig",
    "ModelDrafts",
    "NgramDrafts",
    "NodeConfig",
    "ObserveConfig",
    "OfflineConfig",
    "OriginConfig",
    "Range",
    "RouteConfig",
    "RouterConfig",
    "SamplingConfig",
    "SchedulerConfig",
    "ServeConfig",
    "ServerConfig",
    "SpeculationConfig",
    "SuffixDrafts",
    "TlsConfig",
    "TracesConfig",
    "WatermarkConfig",
    "build",
    "check",
    "flatten",
    "for_media",
    "for_share",
    "leaves",
    "option",
    "read_environment",
]
