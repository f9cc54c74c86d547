"""The benchmark of a server: the load that is sent, and what its clients saw."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pagemill.benchmark.load_generator import Load, RequestTimes, generate_load
from pagemill.benchmark.machine_limits import MachineLimits, RunSize, limits_or_none
from pagemill.benchmark.percentiles import summary
from pagemill.benchmark.server_client import ServerClient
from pagemill.config import EngineConfig, ModelConfig, Range, option
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
    num_prompts: int = option(64, "Requests to send.", unit="requests", allowed=_COUNT)
    input_len: int = option(128, "Prompt of each request.", unit="tokens", allowed=_COUNT)
    output_len: int = option(64, "Output of each request.", unit="tokens", allowed=_COUNT)
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
        2, "Requests sent before, not measured.", unit="requests", allowed=Range(0, 10**6)
    )
    max_token_id: int = option(
        10_000, "Prompts are made of token ids from 256 to this.", allowed=Range(257, 10**6)
    )
    workload_seed: int = option(0, "Which random prompts and times.", allowed=Range(0, 2**31 - 1))

    def __post_init__(self) -> None:
        """Checks each field; see `check`."""
        check(self)


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
    """Sends the warm-up, then the requests that are measured."""
    model = config.model_name or client.first_model()
    limits = _limits(config, client, model, note) if with_limits else None
    if config.num_warmups:
        asyncio.run(generate_load(client, _load(config, model, config.num_warmups, "warm-up")))
    times = asyncio.run(generate_load(client, _load(config, model, config.num_prompts, "run")))
    return ServingRun(config, model, times, limits)


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
        "input_tokens": config.input_len,
        "output_tokens": config.output_len,
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


def _load(config: LoadConfig, model: str, count: int, what: str) -> Load:
    return Load(
        prompts=_prompts(config, count, what),
        model=model,
        output_len=config.output_len,
        request_rate=config.request_rate,
        max_concurrency=config.max_concurrency,
        seed=config.workload_seed,
        temperature=config.temperature,
    )


def _limits(
    config: LoadConfig, client: ServerClient, model: str, note: Callable[[str], None]
) -> MachineLimits | None:
    """None, with a note, if the model's file is not on this machine."""
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


def _prompts(config: LoadConfig, count: int, what: str) -> list[list[int]]:
    rng = random.Random(f"{config.workload_seed} {what}")
    # The prefix is the same in warm-up and run, as a server's common prefix would be.
    common = random.Random(config.workload_seed)
    prefix_len = min(config.prefix_len, config.input_len)
    prefix = [common.randint(256, config.max_token_id) for _ in range(prefix_len)]
    rest = config.input_len - prefix_len
    return [
        prefix + [rng.randint(256, config.max_token_id) for _ in range(rest)] for _ in range(count)
    ]
