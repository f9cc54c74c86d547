"""Options for KV blocks that are evicted from the pool: docs/kv_tiers.md."""

from dataclasses import dataclass

from pagemill.config.fields import ConfigError, Range, check, option


@dataclass(frozen=True, slots=True)
class KvTierConfig:
    """KV offloading: host memory and disk behind the pool, or what engines share."""

    kv_offloading_bytes: int | None = option(
        None,
        "Host memory for KV blocks evicted from the pool, such as 2GiB; they are copied back"
        " instead of being computed again. Default: none.",
        unit="bytes",
        allowed=Range(1, 2**62),
    )
    kv_offloading_disk_path: str = option(
        "",
        "A file that must not exist, for KV blocks evicted from host memory. Its space is allocated"
        " at the start and freed at the end. Needs --kv-offloading-disk-bytes.",
    )
    kv_offloading_disk_bytes: int | None = option(
        None, "Size of that file.", unit="bytes", allowed=Range(1, 2**62)
    )
    kv_offloading_policy: str = option(
        "lru",
        "Eviction policy of a tier. lru: the least recently used block. arc: likewise, but protects"
        " blocks used more than once from a stream of blocks that are used once.",
        allowed=("arc", "lru"),
    )
    kv_connector_path: str = option(
        "",
        "Folder for KV blocks as files, instead of the tiers: they outlive the server, and servers"
        " of the same model may share it.",
    )
    kv_connector_bytes: int = option(
        16 * 2**30,
        "Maximum bytes in that folder; nothing is removed from it to make room.",
        unit="bytes",
        allowed=Range(1, 2**62),
    )
    kv_shared_memory_bytes: int | None = option(
        None,
        "Shared memory, instead of tiers and folder, by which this engine hands the KV of prompts"
        " to other engines on this machine, and takes theirs: see kv_transfer_params. Default:"
        " none.",
        unit="bytes",
        allowed=Range(1, 2**62),
    )
    kv_transfer_listen: str = option(
        "",
        "Address and port, such as 10.0.0.7:7000, where engines on other machines fetch the KV that"
        " waits in the shared memory: an IP address, or a name that this machine knows. The network"
        " must be trusted: KV is sent as it is. Needs --kv-transfer-secret-file.",
    )
    kv_transfer_peers: tuple[str, ...] = option(
        (),
        "Address and port of an engine on another machine from which this one may fetch KV: an IP"
        " address, or a name, of which all addresses hold; may be repeated. Requests that name"
        " other addresses are computed. Needs --kv-transfer-secret-file.",
    )
    kv_transfer_secret_file: str = option(
        "",
        "File with a secret that all of these engines share, at least 16 bytes: `openssl rand -hex"
        " 32`.",
    )
    kv_transfer_timeout_ms: int = option(
        10_000,
        "After this time a request no longer waits for KV that is copied back, and computes it."
        " While more than three copies take longer, no new ones are started. KV that no engine"
        " takes from shared memory is dropped after it. Also limits each message between engines.",
        unit="ms",
        allowed=Range(1, 2**31 - 1),
    )

    def __post_init__(self) -> None:
        """Checks each field; see `check`."""
        check(self)
        if bool(self.kv_offloading_disk_path) != (self.kv_offloading_disk_bytes is not None):
            raise ConfigError(
                "--kv-offloading-disk-path and --kv-offloading-disk-bytes go together"
            )
        tiers = self.kv_offloading_bytes is not None or self.kv_offloading_disk_path
        if tiers and self.kv_connector_path:
            raise ConfigError(
                "--kv-connector-path is in place of --kv-offloading-bytes and"
                " --kv-offloading-disk-path, not beside them"
            )
        if self.kv_shared_memory_bytes is not None and (tiers or self.kv_connector_path):
            raise ConfigError(
                "--kv-shared-memory-bytes is in place of --kv-offloading-bytes,"
                " --kv-offloading-disk-path and --kv-connector-path, not beside them"
            )
        self._check_network()

    def _check_network(self) -> None:
        remote = bool(self.kv_transfer_listen or self.kv_transfer_peers)
        if remote and self.kv_shared_memory_bytes is None:
            raise ConfigError(
                "--kv-transfer-listen and --kv-transfer-peers need --kv-shared-memory-bytes, the"
                " room for KV that waits to be fetched"
            )
        if remote != bool(self.kv_transfer_secret_file):
            raise ConfigError(
                "--kv-transfer-secret-file goes with --kv-transfer-listen or --kv-transfer-peers"
            )

    @property
    def enabled(self) -> bool:
        """True if evicted KV is stored outside the pool."""
        return bool(
            self.kv_offloading_bytes
            or self.kv_offloading_disk_path
            or self.kv_connector_path
            or self.kv_shared_memory_bytes
        )

    @property
    def host_bytes(self) -> int:
        """The memory that tiers or shared memory take."""
        return self.kv_offloading_bytes or self.kv_shared_memory_bytes or 0

    @property
    def host_bytes_flag(self) -> str:
        """What sets `host_bytes`."""
        return (
            "--kv-shared-memory-bytes" if self.kv_shared_memory_bytes else "--kv-offloading-bytes"
        )
