"""Options of `/v1/files` and `/v1/batches`."""

from dataclasses import dataclass

from pagemill.config.fields import Range, check, option


@dataclass(frozen=True, slots=True)
class BatchApiConfig:
    """Batches: the folder of `/v1/files` and `/v1/batches`, and its limits."""

    batch_dir: str | None = option(
        None,
        "Folder for the files of /v1/files and /v1/batches, which outlive the server; one server"
        " may use it at a time. Default: none, and these routes answer 404.",
    )
    batch_dir_bytes: int = option(
        10 * 2**30,
        "Largest size of all files in --batch-dir together; beyond it uploads are refused with HTTP"
        " status 507, and a batch whose answers do not fit fails.",
        unit="bytes",
        allowed=Range(2**20, 2**50),
    )
    batch_file_bytes: int = option(
        200 * 2**20,
        "Largest file that can be uploaded; a larger one is refused with HTTP status 413.",
        unit="bytes",
        allowed=Range(1024, 2**40),
    )
    batch_max_lines: int = option(
        50_000,
        "Maximum number of requests in a batch.",
        unit="requests",
        allowed=Range(1, 10**7),
    )
    batch_max_files: int = option(
        10_000,
        "Maximum number of files in --batch-dir, and of batches; the oldest batches that have ended"
        " are forgotten for new ones.",
        unit="files",
        allowed=Range(1, 10**6),
    )
    batch_max_files_per_key: int = option(
        1000,
        "Maximum number of files, and of batches, of one API key.",
        unit="files",
        allowed=Range(1, 10**6),
    )
    batch_retention: float = option(
        30 * 86400.0,
        "Files and ended batches are deleted after so long, unless a file's own `expires_after` is"
        " shorter.",
        unit="s",
        allowed=Range(3600, 10 * 365 * 86400),
    )
    batch_concurrency: int = option(
        16,
        "Requests of batches that each API process works on at once. With --scheduling-policy"
        " priority they run after all other requests.",
        unit="requests",
        allowed=Range(1, 65536),
    )

    def __post_init__(self) -> None:
        """Checks each field; see `check`."""
        check(self)
