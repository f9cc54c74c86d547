"""The benchmark of a server: the load that is sent, and what its clients saw."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pagemill.benchmark.dataset import read_dataset
from pagemill.benchmark.load_generator import (
    CHAT_COMPLETIONS,
    COMPLETIONS,
    Load,
    Request,
    RequestTimes,
    generate_load,
)
from pagemill.benchmark.machine_limits import MachineLimits, RunSize, limits_or_none
from pagemill.benchmark.percentiles import summary
from pagemill.benchmark.server_client import ServerClient
from pagemill.config import ConfigError, EngineConfig, ModelConfig, Range, option
from pagemill.config.fields import check
from pagemill.engine.model_plan import known_model, model_path

_THIS_MACHINE = ("127.0.0.1", "::1", "localhost")
_COUNT = Range(1, 10**6)


@dataclass(frozen=True, slots=True)
class LoadConfig:
    """Load: what is sent, and how fast."""

    url: str = option("http://127.0.0.1:8000", "Address of the server.")
    model_name: str | None = option(None, "The model to ask for. Default: the first served.")
    client_key: str = option("", "API key to send. Default: PAGEMILL_API_KEY.", kind="secret")
    model_path: str | None = option(
        None,
        "The served model's file or folder on this machine, for the limits. Default: where a server"
        " on this machine says that it has it from.",
    )
    endpoint: str = option(
        COMPLETIONS,
        "Route of the requests. Chats need texts, and so --dataset.",
        allowed=(COMPLETIONS, CHAT_COMPLETIONS),
    )
    dataset: str | None = option(
        None,
        'File with the requests, one JSON object a line: {"prompt": "text", "max_tokens": 100}. The'
        " first --num-prompts are sent, and outputs end where the model ends them. Default: random"
        " token ids, whose outputs have --output-len tokens.",
    )
    num_prompts: int = option(64, "Requests to send.", unit="requests", allowed=_COUNT)
    input_len: int = option(
        128, "Prompt of each request with random token ids.", unit="tokens", allowed=_COUNT
    )
    output_len: int = option(
        64,
        "Output of each request; with --dataset the most of lines without max_tokens.",
        unit="tokens",
        allowed=_COUNT,
    )
    temperature: float | None = option(
        None, "Sampling temperature of the requests. Default: the server's.", allowed=Range(0, 100)
    )
    prefix_len: int = option(
        0, "Of each prompt, how much all have in common.", unit="tokens", allowed=Range(0, 10**6)
    )
    request_rate: float = option(
        math.inf,
        "Requests per second, at random times (a Poisson process); inf sends all at once.",
        allowed=Range(1e-6),
    )
    max_concurrency: int = option(
        16, "Most requests that are open at the same time.", unit="requests", allowed=_COUNT
    )
    num_warmups: int = option(
        2,
        "Requests sent before, not measured. With --dataset: the lines after those of"
        " --num-prompts, if there are any.",
        unit="requests",
        allowed=Range(0, 10**6),
    )
    max_token_id: int = option(
        10_000, "Prompts are made of token ids from 256 to this.", allowed=Range(257, 10**6)
    )
    workload_seed: int = option(0, "Which random prompts and times.", allowed=Range(0, 2**31 - 1))

    def __post_init__(self) -> None:
        """Checks each field; see `check`."""
        check(self)
        if self.endpoint == CHAT_COMPLETIONS and self.dataset is None:
            raise ConfigError(f"--endpoint {CHAT_COMPLETIONS} needs --dataset: chats are texts")


@dataclass(frozen=True, slots=True)
class ServingRun:
    """What came of the measured requests; `limits` are None if the model's file is not here."""

    config: LoadConfig
    model: str
    times: list[RequestTimes]
    limits: MachineLimits | None


def run_load(
    config: LoadConfig, client: ServerClient, *, with_limits: bool, note: Callable[[str], None]
) -> ServingRun:
    """Sends the warm-up, then the requests that are measured.

    Raises:
      ConfigError: the data set cannot be used.
      ClientError: the server is not there, or refuses.
    """
    warmups, requests = requests_of(config)
    model = config.model_name or client.first_model()
    limits = _limits(config, client, model, note) if with_limits else None
    if warmups:
        asyncio.run(generate_load(client, _load(config, model, warmups)))
    times = asyncio.run(generate_load(client, _load(config, model, requests)))
    return ServingRun(config, model, times, limits)


def failures(times: Sequence[RequestTimes]) -> list[str]:
    """Returns the errors of requests, each once and no more than five."""
    return sorted({each.error for each in times if each.error})[:5]


def requests_of(config: LoadConfig) -> tuple[list[Request], list[Request]]:
    """Returns the requests of the warm-up, and those that are measured.

    Raises:
      ConfigError: the data set cannot be used.
    """
    if config.dataset is None:
        return (
            _random_requests(config, config.num_warmups, "warm-up"),
            _random_requests(config, config.num_prompts, "run"),
        )
    wanted = config.num_prompts + config.num_warmups
    found = read_dataset(config.dataset, wanted, config.output_len)
    return found[config.num_prompts :], found[: config.num_prompts]


def serving_report(run: ServingRun) -> dict[str, Any]:
    """Returns the report; times within it are milliseconds."""
    config, limits = run.config, run.limits
    report: dict[str, Any] = {"model": run.model, **summarize(config, run.times)}
    if limits and report["seconds"] and not math.isfinite(config.request_rate):
        shortest = limits.run_seconds(
            _run_size(config), EngineConfig().scheduler.max_num_batched_tokens
        )
        report["limits"] = {**limits.as_json(), "requests_per_s": config.num_prompts / shortest}
        report["achieved_over_limit"] = shortest / report["seconds"]
    return report


def summarize(config: LoadConfig, times: Sequence[RequestTimes]) -> dict[str, Any]:
    """Returns the report; times within it are milliseconds."""
    done = [t for t in times if t.ok]
    seconds = max((t.last for t in done), default=0.0) - min((t.sent for t in times), default=0.0)
    output_tokens = sum(t.output_tokens for t in done)
    per_second = 1 / seconds if done and seconds > 0 else math.nan
    rate = config.request_rate
    return {
        "requests": len(times),
        "failed": len(times) - len(done),
        "endpoint": config.endpoint,
        "input_tokens": _mean(config, config.input_len, [t.input_tokens for t in done]),
        "output_tokens": _mean(config, config.output_len, [t.output_tokens for t in done]),
        "request_rate": rate if math.isfinite(rate) else "inf",
        "temperature": "server's" if config.temperature is None else config.temperature,
        "max_concurrency": config.max_concurrency,
        "seconds": seconds if done else None,
        "requests_per_s": len(done) * per_second if done else None,
        "output_tokens_per_s": output_tokens * per_second if done else None,
        "ttft_ms": summary([t.first - t.sent for t in done]),
        "itl_ms": summary([gap for t in done for gap in t.gaps]),
        "tpot_ms": summary(
            [(t.last - t.first) / (t.output_tokens - 1) for t in done if t.output_tokens > 1]
        ),
        "e2e_ms": summary([t.last - t.sent for t in done]),
    }


def _mean(config: LoadConfig, random: int, seen: Sequence[int]) -> float | int | None:
    """Tokens of a request: `random` if they are all alike."""
    if config.dataset is None:
        return random
    return sum(seen) / len(seen) if seen else None


def _load(config: LoadConfig, model: str, requests: Sequence[Request]) -> Load:
    return Load(
        requests=requests,
        model=model,
        request_rate=config.request_rate,
        max_concurrency=config.max_concurrency,
        seed=config.workload_seed,
        temperature=config.temperature,
        ignore_eos=config.dataset is None,
        endpoint=config.endpoint,
    )


def _limits(
    config: LoadConfig, client: ServerClient, model: str, note: Callable[[str], None]
) -> MachineLimits | None:
    """None, with a note, if the model's file is not on this machine, or sizes differ."""
    if config.dataset is not None:
        note("no limits: they are computed for requests of one size")
        return None
    path = config.model_path or _local_model(client, model)
    if path is None:
        note("no limits: name the model's file on this machine with --model-path")
        return None
    return limits_or_none(EngineConfig(model=ModelConfig(model=path)), True, note)


def _local_model(client: ServerClient, model: str) -> str | None:
    """The served model's file: the one that the server names, or the default model's."""
    if client.address.host not in _THIS_MACHINE:
        return None
    root = client.model_root(model)
    if root and Path(root).exists():
        return root
    default = EngineConfig()
    if known_model(default) and model_path(default.model).stem.startswith(model):
        return str(model_path(default.model))
    return None


def _run_size(config: LoadConfig) -> RunSize:
    """A prefix that all have in common is computed once."""
    prefix = min(config.prefix_len, config.input_len)
    own = config.num_prompts * (config.input_len - prefix)
    return RunSize(
        requests=config.num_prompts,
        together=min(config.num_prompts, config.max_concurrency),
        prompt_tokens=own + prefix,
        output_len=config.output_len,
    )


def _random_requests(config: LoadConfig, count: int, what: str) -> list[Request]:
    rng = random.Random(f"{config.workload_seed} {what}")
    # The prefix is the same in warm-up and run, as a server's common prefix would be.
    common = random.Random(config.workload_seed)
    prefix_len = min(config.prefix_len, config.input_len)
    prefix = [common.randint(256, config.max_token_id) for _ in range(prefix_len)]
    rest = config.input_len - prefix_len
    prompts = (
        prefix + [rng.randint(256, config.max_token_id) for _ in range(rest)] for _ in range(count)
    )
    return [Request(prompt, config.output_len) for prompt in prompts]
