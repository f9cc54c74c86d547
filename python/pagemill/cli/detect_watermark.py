"""`pagemill detect-watermark`: whether a text bears the mark of a key."""

import json
import sys
from argparse import Namespace
from dataclasses import dataclass

from pagemill.config import ModelConfig, option
from pagemill.config.fields import ConfigError, Range, check
from pagemill.config.flags import FlagParser
from pagemill.config.watermark import WatermarkConfig


@dataclass(frozen=True, slots=True)
class DetectConfig:
    """The text, and when it counts as marked."""

    text_file: str = option(
        "-",
        "File with the text, UTF-8, without the prompt; - reads standard input.",
    )
    max_p_value: float = option(
        1e-6,
        "The text counts as marked if chance gives such a score at most this often: of a million"
        " texts without the mark, 1e-6 finds one.",
        allowed=Range(0, 1),
    )

    def __post_init__(self) -> None:
        """Checks each field; see `check`."""
        check(self)


UNMARKED = 3
"""Exit status: no other failure has it."""
_PARTS = (DetectConfig, WatermarkConfig, ModelConfig)


def parser() -> FlagParser:
    """Returns the command's parser."""
    made = FlagParser(
        "pagemill detect-watermark",
        "Looks in a text for the mark of a key (--watermark-key-file), which servers with this key"
        " put into what they write. Reads the model's tokenizer, and no weights. Prints the score,"
        " about 1 without the mark, and how often chance gives such a one (p_value). Exits with 3"
        " if the text does not count as marked.",
        "pagemill detect-watermark model.gguf --watermark-key-file key < answer.txt",
    )
    for part in _PARTS:
        made.add_config(part)
    return made


def run(parser: FlagParser, args: Namespace) -> int:
    """Prints what is found, as one line of JSON."""
    config = parser.read(DetectConfig, args, _PARTS)
    model = parser.read(ModelConfig, args, _PARTS)
    from pagemill.engine.loading import build_options
    from pagemill.engine.model_source import open_model
    from pagemill.engine.watermark import detect, load_watermark
    from pagemill.render.renderer import Renderer

    watermark = load_watermark(parser.read(WatermarkConfig, args, _PARTS))
    if watermark is None:
        raise ConfigError("--watermark-key-file is needed: the key whose mark is looked for")
    text = _read(config.text_file)
    renderer = Renderer.open(open_model(model, build_options(model), values=False).source)
    try:
        found = detect(watermark, renderer.encode(text, add_special_tokens=False))
    finally:
        renderer.close()
    marked = found.p_value <= config.max_p_value
    print(
        json.dumps(
            {
                "is_watermarked": marked,
                "score": round(found.score, 4),
                "p_value": found.p_value,
                "num_scored_tokens": found.num_tokens,
            }
        )
    )
    return 0 if marked else UNMARKED


def _read(path: str) -> str:
    try:
        if path == "-":
            return sys.stdin.buffer.read().decode()  # UTF-8 in any locale
        with open(path, encoding="utf-8") as file:
            return file.read()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--text-file {path}: {error}") from error
