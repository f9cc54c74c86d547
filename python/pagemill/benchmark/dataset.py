"""Requests of a data set: texts with their answers, or lines of a text.

What a record's keys are called says how it is read, so that files of published data sets are used
as they are; docs/performance.md has the list.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, cast

from pagemill.benchmark.dataset_records import Record, read_records
from pagemill.benchmark.prompts import PromptConfig, Request
from pagemill.config import ConfigError

CountTokens: TypeAlias = Callable[[str], int]
"""The tokens of a text, without special ones."""

_MAX_TEXT_BYTES = 2**20
_MAX_TOKENS = 10**6
_TEXT_TASK = "Continue these lines:\n"

# Key of the prompt -> keys that an answer may have.
_TEXTS: Mapping[str, tuple[str, ...]] = {
    "prompt": ("completion", "response"),
    "question": ("answer",),  # GSM8K
    "problem": ("solution",),  # AIMO
    "instruction": ("output", "response"),  # Alpaca, Dolly, InstructCoder
}
# Keys of turns: ShareGPT, chats of OpenAI's API, MT-Bench.
_TURNS = ("conversations", "conversation", "messages", "turns")
_CONTEXTS = ("input", "context")  # what an instruction is about
_USERS = {"human", "user"}
_ASSISTANTS = {"gpt", "assistant", "chatgpt", "bot"}
_KNOWN = ", ".join(f'"{name}"' for name in (*_TEXTS, *_TURNS))


@dataclass(frozen=True, slots=True)
class _Exchange:
    """A prompt and its answer, "" if there is none."""

    prompt: str
    answer: str = ""


def read_dataset(config: PromptConfig, count: int, count_tokens: CountTokens) -> list[Request]:
    """Returns the first `count` requests of the data set of `config`, or all if it has fewer.

    Conversations that do not begin with a user are skipped, and what is longer than
    `max_request_len`.

    Args:
      config: names the file.
      count: how many requests are needed; records after them are not read.
      count_tokens: of the model; used for answers, lengths that are bounded, and lines of a text.

    Raises:
      ConfigError: the file cannot be read, has no request, or a record is not one.
    """
    path = config.dataset
    assert path is not None
    if path.endswith(".txt"):
        return _line_requests(config, path, count, count_tokens)
    found = list(itertools.islice(_record_requests(config, path, count_tokens), count))
    if not found:
        raise ConfigError(f"--dataset {path}: it has no requests that can be used")
    return found


def _record_requests(
    config: PromptConfig, path: str, count_tokens: CountTokens
) -> Iterator[Request]:
    for record in read_records(path):
        exchange = _exchange(record)
        if exchange is None:
            continue
        output_len = _output_len(config, record, exchange.answer, count_tokens)
        most = config.max_request_len
        if most is None or count_tokens(exchange.prompt) + output_len <= most:
            yield Request(exchange.prompt, output_len)


def _exchange(record: Record) -> _Exchange | None:
    """None for a conversation that no user begins."""
    values = record.values
    for name in _TURNS:
        if isinstance(turns := values.get(name), list):
            return _first_exchange(cast(list[Any], turns))
    for name, answers in _TEXTS.items():
        prompt = values.get(name)
        if isinstance(prompt, list):  # a prompt may be the messages of a chat
            return _first_exchange(cast(list[Any], prompt))
        if isinstance(prompt, str) and prompt:
            if name == "instruction":
                prompt = "\n\n".join([prompt, *_texts(values, _CONTEXTS)])
            return _Exchange(prompt, next(_texts(values, answers), ""))
    raise record.error(f"expected an object with a text that is not empty in one of {_KNOWN}")


def _first_exchange(turns: list[Any]) -> _Exchange | None:
    said = [turn for turn in map(_turn, turns) if turn[0] != "system"]
    if not said or said[0][0] not in _USERS or not said[0][1]:
        return None
    answered = len(said) > 1 and said[1][0] in _ASSISTANTS
    return _Exchange(said[0][1], said[1][1] if answered else "")


def _turn(turn: Any) -> tuple[str, str]:
    """The role and the text; ("", "") for what is neither. A text alone is of a user."""
    if isinstance(turn, str):
        return "user", turn
    fields = cast(dict[str, Any], turn if isinstance(turn, dict) else {})
    role, text = fields.get("role", fields.get("from")), fields.get("content", fields.get("value"))
    return (role, text) if isinstance(role, str) and isinstance(text, str) else ("", "")


def _texts(values: Mapping[str, Any], names: tuple[str, ...]) -> Iterator[str]:
    for name in names:
        if isinstance(text := values.get(name), str) and text:
            yield text


def _output_len(
    config: PromptConfig, record: Record, answer: str, count_tokens: CountTokens
) -> int:
    if "max_tokens" in record.values:
        tokens = record.values["max_tokens"]
        if type(tokens) is not int or not 1 <= tokens <= _MAX_TOKENS:
            raise record.error(f'"max_tokens" is not an integer from 1 to {_MAX_TOKENS}')
        return tokens
    if answer and config.output_len is None:
        return max(1, count_tokens(answer))
    return config.default_output_len


def _line_requests(
    config: PromptConfig, path: str, count: int, count_tokens: CountTokens
) -> list[Request]:
    """Prompts of about `input_len` tokens, which begin with the same lines."""
    try:
        with Path(path).open("rb") as file:
            data = file.read(_MAX_TEXT_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"--dataset {path}: {error.strerror or error}") from None
    if len(data) > _MAX_TEXT_BYTES:
        raise ConfigError(f"--dataset {path}: a text of more than 1 MiB")
    lines = [line for line in data.decode("utf-8", "replace").splitlines() if line.strip()]
    if not lines:
        raise ConfigError(f"--dataset {path}: it has no lines")
    line_tokens = max(1, count_tokens("\n".join(lines))) / len(lines)
    task_tokens = count_tokens(_TEXT_TASK)

    def lines_of(tokens: int) -> int:
        return max(0, round((tokens - task_tokens) / line_tokens))

    size = max(1, lines_of(config.input_len))
    common = lines[: min(size, lines_of(config.prefix_len))]
    rng = random.Random(config.workload_seed)
    return [
        Request(
            _TEXT_TASK + "\n".join(common + rng.choices(lines, k=size - len(common))),
            config.default_output_len,
        )
        for _ in range(count)
    ]
