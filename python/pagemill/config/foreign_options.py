"""What to do about an option that is not Pagemill's: vLLM's and llama.cpp's have an answer each,
and those of their benchmarks.

An unknown option ends a command. Command lines that were written for another server are full of
them, and the closest name of ours is often not what was meant (`--runner` is not `--nnodes`).
"""

import re
from collections.abc import Iterable

_ALWAYS = "leave it out, it is always so"
_NO_CHOICE = "leave it out, there is nothing to choose"

# Names without leading dashes, and what to do about them.
_VLLM = (
    ("gpu-memory-utilization device-memory-utilization", "here it is --memory-utilization"),
    ("num-gpu-blocks-override", "use --kv-cache-memory-bytes"),
    ("kv-offloading-size", "here it is --kv-offloading-bytes, such as 4GiB"),
    (
        "swap-space",
        "leave it out: preempted requests are computed again; --kv-offloading-bytes keeps evicted"
        " KV in host memory",
    ),
    (
        "enable-auto-tool-choice",
        "leave it out: models may call tools without it, in the format of --tool-call-parser or"
        " else of the chat template",
    ),
    (
        "tool-parser-plugin reasoning-parser-plugin",
        "formats are installed as packages (docs/plugins.md)",
    ),
    (
        "exclude-tools-when-tool-choice-none",
        "leave it out: requests that want no tools leave out `tools`",
    ),
    ("tool-server", "use --mcp-servers"),
    ("enforce-eager", "leave it out: nothing is compiled at the start"),
    (
        "compilation-config cudagraph-capture-sizes max-seq-len-to-capture O0 O1 O2 O3",
        "leave it out: nothing is compiled at the start, and graphs are recorded as they are"
        " needed",
    ),
    ("trust-remote-code", "leave it out: code from a model's repository is never run"),
    ("disable-log-requests", "leave it out: requests are logged only with --enable-log-requests"),
    ("disable-uvicorn-access-log", "leave it out: requests are listed only with --access-log"),
    (
        "disable-log-stats",
        "leave it out, or use --log-level warning: throughput is logged while there are requests,"
        " as information",
    ),
    ("uvicorn-log-level", "here it is --log-level"),
    ("disable-fastapi-docs", "here it is --no-playground"),
    (
        "enable-chunked-prefill",
        "leave it out: a prompt longer than --max-num-batched-tokens always runs in several steps",
    ),
    ("async-scheduling", _ALWAYS),
    (
        "disable-custom-all-reduce disable-cascade-attn num-scheduler-steps"
        " multi-step-stream-outputs use-v2-block-manager",
        _NO_CHOICE,
    ),
    (
        "distributed-executor-backend worker-cls worker-use-ray disable-frontend-multiprocessing",
        "leave it out; --isolate-engine and --api-server-count start further processes",
    ),
    (
        "attention-backend mm-encoder-attn-backend",
        "leave it out: `pagemill doctor MODEL` lists the kernels that are chosen",
    ),
    ("guided-decoding-backend", "here it is --structured-outputs-backend"),
    ("structured-outputs-config", "use --structured-outputs-backend"),
    ("runner convert", "use --task"),
    (
        "tokenizer tokenizer-revision code-revision hf-config-path config-format",
        "a model's tokenizer and configuration are in its own folder, GGUF file or --revision",
    ),
    ("download-dir", "here it is --cache-dir"),
    ("hf-token", "set the environment variable HF_TOKEN"),
    (
        "ignore-patterns safetensors-load-strategy model-loader-extra-config use-tqdm-on-load",
        _NO_CHOICE,
    ),
    (
        "rope-scaling rope-theta",
        'use --hf-overrides, as in {"rope_parameters": {"rope_type": "yarn", "factor": 4.0}}',
    ),
    ("speculative-model num-speculative-tokens", "use --speculative-config"),
    ("seed", "requests have a `seed` of their own"),
    (
        "default-chat-template-kwargs",
        "requests have `chat_template_kwargs`; for all of them, change the template"
        " (--chat-template)",
    ),
    ("return-tokens-as-token-ids", "requests have `return_tokens_as_token_ids`"),
    ("enable-force-include-usage", 'requests have `stream_options: {"include_usage": true}`'),
    (
        "enable-prompt-tokens-details enable-server-load-tracking enable-request-id-headers"
        " enable-tokenizer-info-endpoint",
        _ALWAYS,
    ),
    ("response-role", "leave it out: answers are the assistant's"),
    (
        "logits-processors",
        "they are installed as packages, and requests name them in `vllm_xargs` (docs/plugins.md)",
    ),
    ("enable-sleep-mode", "leave it out: /sleep and /wake_up are at --admin-address"),
    (
        "kv-transfer-config",
        "use --kv-shared-memory-bytes between engines, or --kv-connector-path for a shared folder"
        " (docs/kv_tiers.md)",
    ),
    ("kv-events-config", "use --max-kv-events"),
    ("h11-max-incomplete-event-size", "use --max-header-bytes"),
    ("tp", "here it is --tensor-parallel-size"),
    ("pp", "here it is --pipeline-parallel-size"),
    ("dp", "here it is --data-parallel-size"),
    ("asc", "here it is --api-server-count"),
    ("ep", "here it is --enable-expert-parallel"),
)

_LLAMA_CPP = (
    (
        "m hf hfr hf-repo",
        "the model is the first argument: a file, a folder or a hub id (owner/name, or"
        " owner/name/file.gguf)",
    ),
    ("c ctx-size", "here it is --max-model-len"),
    (
        "ngl gpu-layers n-gpu-layers",
        "leave it out: --device holds all layers, or, with --cpu-offload-gb, all but some of their"
        " weights",
    ),
    ("t", "here it is --threads"),
    ("np parallel", "here it is --max-num-seqs"),
    ("b batch-size ub ubatch-size", "here it is --max-num-batched-tokens"),
    ("cb cont-batching fa flash-attn jinja metrics", _ALWAYS),
    ("ctk ctv cache-type-k cache-type-v", "here it is --kv-cache-dtype, of both keys and values"),
    (
        "md model-draft",
        'use --speculative-config, as in {"method": "draft_model", "model": "small.gguf",'
        ' "num_speculative_tokens": 5}',
    ),
    ("a alias", "here it is --served-model-name"),
    ("embedding embeddings", "here it is --task embed"),
    ("chat-template-file", "here it is --chat-template"),
    ("lora", "use --lora-modules"),
    (
        "grammar grammar-file json-schema",
        'requests have `structured_outputs`, such as {"grammar": ...} or {"json": ...}',
    ),
    ("mlock no-mmap", _NO_CHOICE),
    ("ts tensor-split sm split-mode", "use --tensor-parallel-size"),
    ("no-webui", "here it is --no-playground"),
    ("v verbose", "use --log-level debug"),
)

# Of `vllm bench` and `llama-bench`. Each answer names an option that tells benchmarks from servers.
_BENCHMARKS = (
    ("base-url host port", "here it is --url, as in http://127.0.0.1:8000"),
    ("model", "here it is --model-name, and --url says where the server is"),
    ("backend endpoint-type", "use --endpoint"),
    (
        "dataset-name",
        "leave it out: prompts are random token ids, or those of the file that --dataset names",
    ),
    ("dataset-path", "here it is --dataset"),
    ("random-input-len sonnet-input-len p n-prompt", "here it is --input-len"),
    (
        "random-output-len sharegpt-output-len custom-output-len hf-output-len sonnet-output-len"
        " n-gen",
        "here it is --output-len",
    ),
    ("random-range-ratio", "here it is --range-ratio"),
    ("random-prefix-len prefix-repetition-prefix-len", "here it is --prefix-len"),
    ("prefix-repetition-num-prefixes", "here it is --num-prefixes"),
    ("seed", "here it is --workload-seed"),
    ("batch-size", "here it is --num-prompts"),
    ("num-iters-warmup", "here it is --num-warmups"),
    ("r repetitions", "here it is --num-iters"),
    ("ramp-up-strategy", "here it is --ramp-up"),
    ("ramp-up-start-rps", "here it is --request-rate, with --ramp-up"),
    ("ramp-up-end-rps", "here it is --ramp-up-rate"),
    (
        "save-result save-detailed append-result result-dir result-filename output-json",
        "use --json, and keep what it prints",
    ),
    (
        "percentile-metrics metric-percentiles",
        "leave it out: the report has p50, p90, p95 and p99 of all times, also with --json",
    ),
    ("plot-timeline plot-dataset-stats", "use --plot"),
    (
        "tokenizer tokenizer-mode",
        "leave it out: prompts are random token ids, or texts of --dataset",
    ),
)

FOREIGN_OPTIONS = {
    name: what for table in (_VLLM, _LLAMA_CPP) for names, what in table for name in names.split()
}
"""What a message says about an option of another server, by its name without leading dashes."""

BENCHMARK_OPTIONS = {name: what for names, what in _BENCHMARKS for name in names.split()}
"""The same of other benchmarks' options, for commands that have the options which it names."""


def foreign_option(name: str, known: Iterable[str]) -> str | None:
    """Returns what to do about an option of another server; None if `name` is none.

    Args:
      name: the option as it was given; dashes and underscores do not matter.
      known: names or flags that would have been taken there. An answer that names an option which
        is not among them is not given.
    """
    plain = _plain(name)
    taken = {_plain(each) for each in known}
    for table in (BENCHMARK_OPTIONS, FOREIGN_OPTIONS):
        what = table.get(plain) or table.get(plain.removeprefix("no-"))
        if what is not None and taken >= named_options(what):
            return what
    return None


def named_options(what: str) -> set[str]:
    """Returns the options that a sentence names, without dashes; `--no-x` is `x`."""
    return {flag.removeprefix("no-") for flag in re.findall(r"--([a-z][a-z-]*)", what)}


def _plain(name: str) -> str:
    return name.lstrip("-").replace("_", "-")
