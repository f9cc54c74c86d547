"""`pagemill plan`: what a model takes and what fits, before anything of it is loaded."""

import json
from argparse import Namespace
from typing import TYPE_CHECKING

from pagemill.config import EngineConfig
from pagemill.config.flags import FlagParser
from pagemill.config.memory import MOST_TOKENS
from pagemill.config.quantities import format_bytes
from pagemill.engine.model_plan import ModelPlan, plan_model

if TYPE_CHECKING:
    from pagemill.engine.sampling import SamplingDefaults


def parser() -> FlagParser:
    """Returns the command's parser."""
    made = FlagParser(
        "pagemill plan",
        "Prints what memory a model takes, what context and concurrency fit and how it samples by"
        " default, without loading it. The server decides with the same numbers. Exits with 1 if"
        " the model does not fit.",
        "pagemill plan\npagemill plan model.gguf --max-model-len 32K --kv-cache-dtype bf16",
    )
    made.add_argument("--json", action="store_true", help="print JSON")
    made.add_config(EngineConfig)
    return made


def run(parser: FlagParser, args: Namespace) -> int:
    """Prints the plan."""
    plan = plan_model(parser.read(EngineConfig, args))
    print(json.dumps(plan.as_json(), indent=2) if args.json else _table(plan))
    return 0 if plan.kv is not None else 1


def _table(plan: ModelPlan) -> str:
    rows = [
        ("model", f"{plan.path}"),
        ("", f"{plan.architecture}, {plan.max_model_len:,} tokens of context"),
        ("device", plan.device),
        ("weights", _size(plan.weights) + _packed(plan)),
        *_offloaded(plan),
        ("activations", _size(plan.activations)),
        ("workspace", _size(plan.workspace)),
        ("logits", _size(plan.logits)),
        *_adapters(plan),
    ]
    if plan.offloading:
        rows.append(("offloading", _size(plan.offloading) + "   host memory for KV"))
    if plan.kv is not None:
        kv = plan.kv
        note = _tokens(kv.num_tokens) if plan.kv_pages.page_bytes else "none is needed"
        rows += [
            ("KV cache", f"{_size(kv.kv_bytes)}   {note}"),
            ("total", _size(plan.fixed + kv.kv_bytes)),
        ]
    rows.append(("may use", f"{_size(plan.limit)}   of {format_bytes(plan.available)} available"))
    if plan.kv_pages.page_bytes:
        rows.append(("KV per token", f"{_size(plan.kv_per_token)}"))
    if plan.sampling is not None:
        rows.append(("sampling", _sampling(plan.sampling.defaults)))
        rows.append(("", plan.sampling.origin))
    lines = [f"{name:<13}{text}" for name, text in rows]
    return "\n".join([*lines, "", *_what_fits(plan)])


def _what_fits(plan: ModelPlan) -> list[str]:
    if plan.kv is None:
        return [f"does not fit: {plan.refusal}"]
    if not plan.kv_pages.page_bytes:
        return ["fits"]
    lengths = sorted({min(n, plan.max_model_len) for n in (1024, 4096, plan.max_model_len)})
    counts = {tokens: plan.concurrency(tokens) for tokens in lengths}
    lines = [
        f"fits: {count:,} request{'' if count == 1 else 's'} of {tokens:,} tokens at the same time"
        for tokens, count in counts.items()
    ]
    if plan.largest_kv_pages > plan.kv.num_blocks:
        tokens = plan.kv_pages.tokens(plan.largest_kv_pages - 1)
        largest = plan.largest_kv_pages * plan.kv_pages.page_bytes
        lines.append(f"room for {_tokens(tokens)}: --kv-cache-memory-bytes {largest // 2**20}MiB")
    return lines


def _sampling(defaults: "SamplingDefaults") -> str:
    """The fields that differ from the neutral ones, and the temperature."""
    from pagemill.config.sampling import MODEL_FIELDS

    shown = {
        name: value
        for name, value in defaults.values().items()
        if name == "temperature" or value != MODEL_FIELDS[name].neutral
    }
    if defaults.max_tokens is not None:
        shown["max_tokens"] = defaults.max_tokens
    return ", ".join(f"{name} {value:g}" for name, value in shown.items())


def _tokens(count: int) -> str:
    return f"{count:,} tokens" if count < MOST_TOKENS else "requests of any length"


def _packed(plan: ModelPlan) -> str:
    return f"   {format_bytes(plan.packed)} of them repacked in memory" if plan.packed else ""


def _offloaded(plan: ModelPlan) -> list[tuple[str, str]]:
    if not plan.offloaded:
        return []
    return [("", f"{_size(plan.offloaded)}   more in host memory, for the device to read")]


def _adapters(plan: ModelPlan) -> list[tuple[str, str]]:
    if not plan.adapters:
        return []
    ranks = [f"{kind}: rank {each.rank}" for kind, each in plan.adapters.items()]
    return [("adapters", f"{_size(plan.adapter_bytes)}   {', '.join(ranks)}")]


def _size(count: int) -> str:
    return f"{format_bytes(count):>12}"
