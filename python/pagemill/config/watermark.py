"""Options of marks in generated texts: docs/watermarks.md."""

from dataclasses import dataclass

from pagemill.config.fields import ConfigError, Range, check, option


@dataclass(frozen=True, slots=True)
class WatermarkConfig:
    """Watermark: a mark in generated texts, which `pagemill detect-watermark` finds."""

    watermark_key_file: str = option(
        "",
        "File with the secret of the marks that drawn tokens bear, at least 16 characters: `openssl"
        " rand -hex 32`. Without it texts have no marks. Greedy outputs have none either; a request"
        " may ask for none (watermarking: false).",
    )
    watermark_context_width: int = option(
        4,
        "Tokens in front of a token that its mark depends on. Fewer survive more edits of the text;"
        " more have fewer contexts that repeat, which bear one mark only.",
        unit="tokens",
        allowed=Range(1, 64),
    )

    def __post_init__(self) -> None:
        """Checks each field; see `check`."""
        check(self)
        if self.watermark_context_width != 4 and not self.watermark_key_file:
            raise ConfigError("--watermark-context-width needs --watermark-key-file")
