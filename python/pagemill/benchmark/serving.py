"""The benchmark of a server: the load that is sent, and what its clients saw."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast, get_args

from pagemill.benchmark.dataset import CountTokens, read_dataset
from pagemill.benchmark.goodput import meets, parse_goals
from pagemill.benchmark.load_generator import Load, Ramp, RequestTimes, generate_load
from pagemill.benchmark.machine_limits import MachineLimits, RunSize, limits_or_none
from pagemill.benchmark.percentiles import summary
from pagemill.benchmark.prompts import (
    PromptConfig,
    Request,
    distinct_prompt_tokens,
    random_requests,
)
from pagemill.benchmark.random_media import MediaConfig, random_image, random_sound
from pagemill.benchmark.routes import COMPLETIONS, ROUTES, SentFields
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
        f"Route of the requests: {', '.join(ROUTES)}. Chats, responses and rerank need texts, and"
        " so --dataset.",
        allowed=tuple(ROUTES),
    )
    prompts: PromptConfig = field(default_factory=PromptConfig)
    media: MediaConfig = field(default_factory=MediaConfig)
    num_documents: int = option(
        8,
        "Documents of each request of /v1/rerank: the texts after its own in --dataset.",
        allowed=Range(1, 1000),
    )
    num_prompts: int = option(64, "Requests to send.", unit="requests", allowed=_COUNT)
    ignore_eos: bool = option(
        False,
        "Let outputs of a data set have all tokens of their length, as those of random token ids"
        " do, instead of ending where the model ends them.",
    )
    temperature: float | None = option(
        None, "Sampling temperature of the requests. Default: the server's.", allowed=Range(0, 100)
    )
    request_rate: float = option(
        math.inf,
        "Requests per second, at random times; inf sends all at once.",
        allowed=Range(1e-6),
    )
    burstiness: float = option(
        1.0,
        "How evenly requests come at a finite rate: their gaps have a gamma distribution of this"
        " shape. 1 is a Poisson process; less are bursts, more is even.",
        allowed=Range(1e-3, 1e6),
    )
    ramp_up: str | None = option(
        None,
        "Let the rate grow from --request-rate, at the first request, to --ramp-up-rate, at the"
        " last one: evenly, or by the same factor with each request.",
        allowed=get_args(Ramp),
    )
    ramp_up_rate: float = option(
        math.inf, "Requests per second at the end of --ramp-up.", allowed=Range(1e-6)
    )
    goodput: tuple[str, ...] = option(
        (),
        "Longest time of a request that counts, as ttft:500, tpot:50 or e2e:5000 in milliseconds;"
        " repeat the flag for several. The report has how many met all of them.",
    )
    max_concurrency: int = option(
        16, "Most requests that are open at the same time.", unit="requests", allowed=_COUNT
    )
    num_warmups: int = option(
        2,
        "Requests sent before, not measured. With --dataset: the records after those of"
        " --num-prompts, if there are any.",
        unit="requests",
        allowed=Range(0, 10**6),
    )
    max_token_id: int = option(
        10_000, "Prompts are made of token ids from 256 to this.", allowed=Range(257, 10**6)
    )

    def __post_init__(self) -> None:
        """Checks each field; see `check`."""
        check(self)
        parse_goals(self.goodput)
        takes = ROUTES[self.endpoint].takes
        if self.prompts.dataset is None and takes not in ("token ids", "sound"):
            raise ConfigError(f"--endpoint {self.endpoint} needs --dataset: its prompts are texts")
        if self.media.num_images and takes != "images":
            raise ConfigError(f"--num-images: requests of {self.endpoint} have none")
        if (self.ramp_up is None) != math.isinf(self.ramp_up_rate):
            raise ConfigError("--ramp-up and --ramp-up-rate go together")
        if self.ramp_up is not None and math.isinf(self.request_rate):
            raise ConfigError("--ramp-up begins at a rate: add --request-rate")


@dataclass(frozen=True, slots=True)
class ServingRun:
    """What came of the measured requests; `limits` are None if the model's file is not here."""

    config: LoadConfig
    model: str
    requests: list[Request]
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
    warmups, requests = requests_of(
        config, lambda text: client.count_tokens(text, config.model_name)
    )
    model = config.model_name or client.first_model()
    limits = _limits(config, client, model, note) if with_limits else None
    if warmups:
        asyncio.run(generate_load(client, _load(config, model, warmups)))
    times = asyncio.run(generate_load(client, _load(config, model, requests)))
    return ServingRun(config, model, requests, times, limits)


def failures(times: Sequence[RequestTimes]) -> list[str]:
    """Returns the errors of requests, each once and no more than five."""
    return sorted({each.error for each in times if each.error})[:5]


def requests_of(
    config: LoadConfig, count_tokens: CountTokens
) -> tuple[list[Request], list[Request]]:
    """Returns the requests of the warm-up, and those that are measured.

    Raises:
      ConfigError: the data set cannot be used.
    """
    takes = ROUTES[config.endpoint].takes
    if takes == "sound":
        return _sounds(config, config.num_warmups, "warm-up"), _sounds(
            config, config.num_prompts, "run"
        )
    if config.prompts.dataset is not None:
        wanted = config.num_prompts + config.num_warmups
        found = read_dataset(config.prompts, wanted, count_tokens)
        if takes == "documents":
            found = _with_documents(found, config.num_documents)
        elif config.media.num_images:
            found = _with_images(found, config)
        return found[config.num_prompts :], found[: config.num_prompts]
    # Prefixes are the same in warm-up and run, as a server's common prefixes would be.
    token_ids = range(256, config.max_token_id + 1)
    return (
        random_requests(config.prompts, config.num_warmups, token_ids, run="warm-up"),
        random_requests(config.prompts, config.num_prompts, token_ids, run="run"),
    )


def _sounds(config: LoadConfig, count: int, run: str) -> list[Request]:
    rng = random.Random(f"{config.prompts.workload_seed} sound {run}")
    seconds = config.media.audio_seconds
    return [
        Request("", config.prompts.default_output_len, sound=random_sound(rng, seconds))
        for _ in range(count)
    ]


def _with_images(requests: Sequence[Request], config: LoadConfig) -> list[Request]:
    rng = random.Random(f"{config.prompts.workload_seed} images")
    count, sides = config.media.num_images, config.media.image_sides()
    return [
        replace(request, images=[random_image(rng, *sides) for _ in range(count)])
        for request in requests
    ]


def _with_documents(requests: Sequence[Request], count: int) -> list[Request]:
    """The documents of a request are the prompts after it; the first one follows the last."""
    prompts = [str(request.prompt) for request in requests]
    return [
        replace(request, documents=[prompts[(at + k) % len(prompts)] for k in range(1, count + 1)])
        for at, request in enumerate(requests)
    ]


def serving_report(run: ServingRun) -> dict[str, Any]:
    """Returns the report; times within it are milliseconds."""
    config, limits = run.config, run.limits
    report: dict[str, Any] = {"model": run.model, **summarize(config, run.times)}
    if limits and report["seconds"] and not math.isfinite(config.request_rate):
        shortest = limits.run_seconds(
            _run_size(run), EngineConfig().scheduler.max_num_batched_tokens
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
    goals = parse_goals(config.goodput)
    good = sum(meets(t, goals) for t in times)
    goodput = {"goodput_requests": good, "goodput_per_s": good * per_second if done else None}
    ramp = {"ramp_up": config.ramp_up, "ramp_up_rate": config.ramp_up_rate}
    return {
        "requests": len(times),
        "failed": len(times) - len(done),
        "endpoint": config.endpoint,
        "input_tokens": sum(t.input_tokens for t in done) / len(done) if done else None,
        "output_tokens": output_tokens / len(done) if done else None,
        "request_rate": rate if math.isfinite(rate) else "inf",
        **(ramp if config.ramp_up else {}),
        "temperature": "server's" if config.temperature is None else config.temperature,
        "max_concurrency": config.max_concurrency,
        "seconds": seconds if done else None,
        "requests_per_s": len(done) * per_second if done else None,
        **(goodput if goals else {}),
        "input_tokens_per_s": sum(t.input_tokens for t in done) * per_second if done else None,
        "output_tokens_per_s": output_tokens * per_second if done else None,
        "ttft_ms": summary([t.first - t.sent for t in done if t.output_tokens]),
        "itl_ms": summary([gap for t in done for gap in t.gaps]),
        "tpot_ms": summary(
            [(t.last - t.first) / (t.output_tokens - 1) for t in done if t.output_tokens > 1]
        ),
        "e2e_ms": summary([t.last - t.sent for t in done]),
    }


def _load(config: LoadConfig, model: str, requests: Sequence[Request]) -> Load:
    ignore_eos = config.ignore_eos or config.prompts.dataset is None
    return Load(
        requests=requests,
        fields=SentFields(model, config.temperature, ignore_eos),
        request_rate=config.request_rate,
        burstiness=config.burstiness,
        ramp=cast(Ramp | None, config.ramp_up),
        last_rate=config.ramp_up_rate,
        max_concurrency=config.max_concurrency,
        seed=config.prompts.workload_seed,
        endpoint=config.endpoint,
    )


def _limits(
    config: LoadConfig, client: ServerClient, model: str, note: Callable[[str], None]
) -> MachineLimits | None:
    """None, with a note, if the model's file is not on this machine, or outputs may end early."""
    if config.prompts.dataset is not None or not ROUTES[config.endpoint].streams:
        note("no limits: they are computed for completions of random token ids")
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


def _run_size(run: ServingRun) -> RunSize:
    """A prefix that prompts have in common is computed once."""
    count = len(run.requests)
    return RunSize(
        requests=count,
        together=min(count, run.config.max_concurrency),
        prompt_tokens=distinct_prompt_tokens(run.requests, run.config.prompts.prefix_len),
        output_len=sum(each.output_len for each in run.requests) / count,
    )
