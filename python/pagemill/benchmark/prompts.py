"""The requests of a benchmark: how they are chosen, and those with random token ids."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from pagemill.config import Range, option
from pagemill.config.fields import check

_COUNT = Range(1, 10**6)
_OUTPUT_LEN = 128


@dataclass(frozen=True, slots=True)
class Request:
    """A prompt, as token ids or text, and the tokens of its output, or the most of them.

    `images` are data URLs, `sound` is a WAV file, and `documents` are texts to be ranked.
    """

    prompt: Sequence[int] | str
    output_len: int
    images: Sequence[str] = ()
    sound: bytes = b""
    documents: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class PromptConfig:
    """Prompts: random token ids, or texts of a data set."""

    dataset: str | None = option(
        None,
        "File with a data set: JSON (an array, or one object a line) or CSV, such as ShareGPT,"
        " MT-Bench or Alpaca, of which the first usable requests are taken; or a .txt file, whose"
        " lines are put together at random (docs/performance.md). Default: random token ids.",
    )
    max_request_len: int | None = option(
        None,
        "Leave out requests of a data set whose prompt and output have more tokens than this.",
        unit="tokens",
        allowed=_COUNT,
    )
    input_len: int = option(
        128,
        "Prompt of each request with random token ids, or with lines of a text.",
        unit="tokens",
        allowed=_COUNT,
    )
    output_len: int | None = option(
        None,
        "Output of each request. A data set's own max_tokens is used instead. Default: as many"
        f" tokens as the data set's answer has; {_OUTPUT_LEN} if there is no answer.",
        unit="tokens",
        allowed=_COUNT,
    )
    range_ratio: float = option(
        0.0,
        "Draw each --input-len and --output-len of random token ids evenly from (1 - this) to"
        " (1 + this) times the length.",
        allowed=Range(0, 1),
    )
    prefix_len: int = option(
        0, "Tokens that prompts have in common, part of each.", allowed=Range(0, 10**6)
    )
    num_prefixes: int = option(
        1, "Different common beginnings of random token ids, used in turn.", allowed=_COUNT
    )
    workload_seed: int = option(0, "Which random prompts.", allowed=Range(0, 2**31 - 1))

    def __post_init__(self) -> None:
        """Checks each field; see `check`."""
        check(self)

    @property
    def default_output_len(self) -> int:
        """Tokens of an output of which nothing else is known."""
        return _OUTPUT_LEN if self.output_len is None else self.output_len


def random_requests(
    config: PromptConfig, count: int, token_ids: range, *, run: str, prefix_run: str = ""
) -> list[Request]:
    """Returns requests whose prompts share their prefixes and nothing else.

    Args:
      config: sizes and seed.
      count: how many requests.
      token_ids: from which the prompts are made.
      run: prompts of another run are different.
      prefix_run: the same for prefixes, which runs may share.
    """
    common = random.Random(f"{config.workload_seed} prefix {prefix_run}")
    prefixes = [
        common.choices(token_ids, k=config.prefix_len)
        for _ in range(min(config.num_prefixes, count))
    ]
    rng = random.Random(f"{config.workload_seed} {run}")

    def request(index: int) -> Request:
        size = _near(config.input_len, config.range_ratio, rng)
        prefix = prefixes[index % len(prefixes)][:size]
        prompt = prefix + rng.choices(token_ids, k=size - len(prefix))
        return Request(prompt, _near(config.default_output_len, config.range_ratio, rng))

    return [request(index) for index in range(count)]


def distinct_prompt_tokens(requests: Sequence[Request], prefix_len: int) -> int:
    """Returns the tokens of all prompts, each common beginning of `prefix_len` tokens once."""
    seen: set[tuple[int | str, ...]] = set()
    total = 0
    for request in requests:
        prefix = tuple(request.prompt[:prefix_len])
        total += len(request.prompt) - (len(prefix) if prefix in seen else 0)
        seen.add(prefix)
    return total


def _near(length: int, ratio: float, rng: random.Random) -> int:
    return rng.randint(max(1, round(length * (1 - ratio))), max(1, round(length * (1 + ratio))))
