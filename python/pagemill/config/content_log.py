"""Options of prompts and outputs in the log."""

from dataclasses import dataclass

from pagemill.config.fields import ConfigError, Range, check, option


@dataclass(frozen=True, slots=True)
class ContentLogConfig:
    """Prompts and outputs in the log, which has neither by default."""

    enable_log_requests: bool = option(
        False,
        "Log the prompt of each request that reaches the engine, with its id, key's name, tokens"
        " and sampling. The log then holds what clients sent: protect it like their data.",
    )
    enable_log_outputs: bool = option(
        False,
        "Log each output at its end, as the model wrote it, markers of reasoning and calls"
        " included. Streams are logged as a whole.",
    )
    max_log_len: int | None = option(
        None,
        "Maximum characters of a prompt or an output in the log, and maximum tokens of them that"
        " are written as text; the rest is left out. Default: 2048.",
        unit="characters",
        allowed=Range(1, 2**16),
    )

    def __post_init__(self) -> None:
        """Checks each field; see `check`.

        Raises:
          ConfigError: there is a length, and nothing is logged.
        """
        check(self)
        logs = self.enable_log_requests or self.enable_log_outputs
        if self.max_log_len is not None and not logs:
            raise ConfigError("--max-log-len needs --enable-log-requests or --enable-log-outputs")
