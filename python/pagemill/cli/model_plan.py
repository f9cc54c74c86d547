"""What a model takes and what fits, before anything of it is loaded."""

import os
from dataclasses import dataclass
from typing import Any

from pagemill.config import CacheConfig, EngineConfig, read_environment
from pagemill.config.memory import FixedCosts, KvBudget, available_memory_bytes, plan_kv_cache
from pagemill.engine.model_loading import built_model, executor_options, model_source
