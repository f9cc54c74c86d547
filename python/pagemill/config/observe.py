"""What the server says about itself."""

from dataclasses import dataclass

from pagemill.config.fields import check, option


@dataclass(frozen=True, slots=True)
class ObserveConfig:
    """Logging: how much is written to standard error."""

    log_level: str = option(
        "info",
        "Least severe messages that are logged.",
        allowed=("debug", "info", "warning", "error"),
    )
    access_log: bool = option(False, "Log a line for each HTTP request.")

    def __post_init__(self) -> None:
        """Checks each field; see `check`."""
        check(self)
