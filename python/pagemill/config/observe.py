"""Options of logging."""

from dataclasses import dataclass

from pagemill.config.fields import check, option


@dataclass(frozen=True, slots=True)
class ObserveConfig:
    """Logging: verbosity of the output on standard error."""

    log_level: str = option(
        "info",
        "Lowest severity of messages that are logged.",
        allowed=("debug", "info", "warning", "error"),
    )
    access_log: bool = option(False, "Log a line for each HTTP request.")

    def __post_init__(self) -> None:
        """Checks each field; see `check`."""
        check(self)
