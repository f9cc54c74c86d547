"""What machines of one server must have in common, besides the model (`model_digest`)."""

from __future__ import annotations

import hashlib
import hmac
import json

import pagemill
from pagemill import _native
from pagemill.config import ConfigError, EngineConfig, ServeConfig, flatten
from pagemill.config.watermark import WatermarkConfig
from pagemill.engine.loading import model_names
from pagemill.engine.meeting_place import MeetingPlace
from pagemill.engine.messages import PROTOCOL
from pagemill.engine.remote.join_messages import MAX_VERSION_CHARS
from pagemill.engine.secret_file import read_secret

_MIN_SECRET_CHARS = 16  # as for nodes: kMinSecretBytes in cc/net/secret.h
_OF_A_MACHINE = frozenset(
    {
        "cache_dir",
        "cpu_offload_gb",
        "device",
        "kernel_filter",
        "kv_cache_memory_bytes",
        "kv_connector_bytes",
        "kv_connector_path",
        "kv_offloading_bytes",
        "kv_offloading_disk_bytes",
        "kv_offloading_disk_path",
        "kv_shared_memory_bytes",
        "kv_transfer_listen",
        "kv_transfer_peers",
        "kv_transfer_secret_file",
        "master_addr",
        "master_port",
        "memory_utilization",
        "model",  # where it is; its name is among the options
        "node_secret_file",
        "numa",
        "pack_cache",
        "served_model_name",
        "threads",
    }
)


def wire_version() -> str:
    """The version of Pagemill, and of the messages between engines and clients."""
    schema = hashlib.sha256(_native.output_schema().encode()).hexdigest()
    return f"{pagemill.__version__}, messages {PROTOCOL}.{schema[:8]}"[:MAX_VERSION_CHARS]


def options_digest(config: EngineConfig) -> str:
    """Hexadecimal digits of a digest of the options that do not concern a machine alone."""
    options = flatten(config)
    common = {name: value for name, value in options.items() if name not in _OF_A_MACHINE}
    common["names"] = model_names(config.model)
    return hashlib.sha256(json.dumps(common, sort_keys=True).encode()).hexdigest()


def with_watermark(model: str, config: WatermarkConfig) -> str:
    """`model`, a digest, for engines that mark texts by one key: the file with it is each machine's
    own.

    Raises:
        ConfigError: the file cannot be read.
    """
    if not config.watermark_key_file:
        return model
    key = read_secret("--watermark-key-file", config.watermark_key_file)
    return hmac.digest(key.encode(), model.encode(), "sha256").hex()


def meeting_place(config: ServeConfig) -> MeetingPlace:
    """Where the machines of one server meet.

    Raises:
        ConfigError: the address or the secret cannot be used.
    """
    engines, flag = config.server.data_parallel, "--data-parallel-address"
    place = MeetingPlace.of(
        flag,
        engines.data_parallel_address,
        engines.data_parallel_rpc_port,
        config.engine.nodes.node_secret_file,
    )
    if 0 < len(place.secret) < _MIN_SECRET_CHARS:
        raise ConfigError(
            f"--node-secret-file: a secret of {len(place.secret)} characters; it has at least"
            f" {_MIN_SECRET_CHARS}"
        )
    return place
