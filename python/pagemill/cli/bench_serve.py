"""`pagemill bench serve`: load on a running server, as its clients feel it."""

import asyncio
import importlib
import importlib.util
import json
import math
import random
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pagemill.config import (
    ConfigError,
    EngineConfig,
    ModelConfig,
    Range,
    option,
    read_environment,
)
from pagemill.config.fields import check
from pagemill.config.flags import FlagParser

if TYPE_CHECKING:
    from pagemill.cli.load_generator import RequestTimes
    from pagemill.cli.machine_limits import MachineLimits, RunSize
    from pagemill.cli.server_client import ServerClient

_COUNT = Range(1, 10**6)
_THIS_MACHINE = ("127.0.0.1", "::1", "localhost")


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


def parser() -> FlagParser:
    """Returns the command's parser."""
    made = FlagParser(
        "pagemill bench serve",
        "Sends streaming completions of random token ids to a running server and reports requests"
        " and tokens per second, time to first token, time between tokens and time to the end."
        " With a server on this machine the run is compared with the machine's limits, measured"
        " just before: prompts and steps as short as reading the weights once or their"
        " multiplications allow (docs/performance.md). Exits with 1 if a request failed.",
        "pagemill bench serve\npagemill bench serve --request-rate 5 --max-concurrency 64 --json",
    )
    made.add_argument("--json", action="store_true", help="print JSON")
    made.add_argument("--no-limits", action="store_true", help="skip measuring the limits (1 s)")
    made.add_argument("--plot", metavar="FILE", help="draw the distributions into a PNG file")
    made.add_config(LoadConfig)
    return made


def run(parser: FlagParser, args: Namespace) -> int:
    """Sends the load and prints the report."""
    config = parser.read(LoadConfig, args)
    if args.plot and importlib.util.find_spec("matplotlib") is None:
        raise ConfigError("--plot needs matplotlib: `pip install matplotlib`")
    from pagemill.cli.bench_report import describe, note
    from pagemill.cli.load_generator import Load, generate_load
    from pagemill.cli.server_client import ServerClient

    keys = read_environment().api_keys
    client = ServerClient(config.url, config.client_key or (keys[0] if keys else ""))
    model = config.model_name or client.first_model()

    def load(prompts: list[list[int]]) -> Load:
        return Load(
            prompts=prompts,
            model=model,
            output_len=config.output_len,
            request_rate=config.request_rate,
            max_concurrency=config.max_concurrency,
            seed=config.workload_seed,
            temperature=config.temperature,
        )

    limits = None if args.no_limits else _limits(config, client, model)
    if config.num_warmups:
        asyncio.run(generate_load(client, load(_prompts(config, config.num_warmups, "warm-up"))))
    times = asyncio.run(generate_load(client, load(_prompts(config, config.num_prompts, "run"))))
    report: dict[str, Any] = {"model": model, **summarize(config, times)}
    if limits and report["seconds"] and not math.isfinite(config.request_rate):
        shortest = limits.run_seconds(
            _run_size(config), EngineConfig().scheduler.max_num_batched_tokens
        )
        report["limits"] = {**limits.as_json(), "requests_per_s": config.num_prompts / shortest}
        report["achieved_over_limit"] = shortest / report["seconds"]
    for error in sorted({t.error for t in times if t.error})[:5]:
        note(f"failed: {error}")
    if args.plot:
        _plot(times, Path(args.plot))
    print(json.dumps(report, indent=2) if args.json else describe(report))
    return 0 if all(t.ok for t in times) else 1


def summarize(config: LoadConfig, times: Sequence["RequestTimes"]) -> dict[str, Any]:
    """Returns the report; times within it are milliseconds."""
    from pagemill.cli.percentiles import summary

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


def _limits(config: LoadConfig, client: "ServerClient", model: str) -> "MachineLimits | None":
    """None, with a note, where the model's file is not on this machine."""
    from pagemill.cli.bench_report import note
    from pagemill.cli.machine_limits import limits_or_none

    path = config.model_path or _local_model(client, model)
    if path is None:
        note("no limits: name the model's file on this machine with --model-path")
        return None
    return limits_or_none(EngineConfig(model=ModelConfig(model=path)), True, note)


def _local_model(client: "ServerClient", model: str) -> str | None:
    """The served model's file: the one that the server names, or the default model's."""
    from pagemill.cli.model_plan import known_model, model_path

    if client.address.host not in _THIS_MACHINE:
        return None
    root = client.model_root(model)
    if root and Path(root).exists():
        return root
    default = EngineConfig()
    if known_model(default) and model_path(default.model).stem.startswith(model):
        return str(model_path(default.model))
    return None


def _run_size(config: LoadConfig) -> "RunSize":
    """A prefix that all have in common is computed once."""
    from pagemill.cli.machine_limits import RunSize

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


def _plot(times: Sequence["RequestTimes"], path: Path) -> None:
    # Imported by name: it is not installed for the server, nor where types are checked.
    importlib.import_module("matplotlib").use("Agg")  # no display is needed
    pyplot: Any = importlib.import_module("matplotlib.pyplot")
    done = [t for t in times if t.ok]
    figure, axes = pyplot.subplots(1, 3, figsize=(12, 3.5), layout="constrained")
    series = {
        "time to first token": [1e3 * (t.first - t.sent) for t in done],
        "time between tokens": [1e3 * gap for t in done for gap in t.gaps],
        "time to the end": [1e3 * (t.last - t.sent) for t in done],
    }
    for axis, (title, values) in zip(axes, series.items(), strict=True):
        ordered = sorted(values)
        shares = [(rank + 1) / len(ordered) for rank in range(len(ordered))]
        axis.plot(ordered, shares)
        axis.set(title=title, xlabel="ms", ylabel="share of requests", ylim=(0, 1))
        axis.grid(alpha=0.3)
    figure.savefig(path)
    pyplot.close(figure)
