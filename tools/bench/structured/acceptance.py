"""How many JSON Schemas of schemastore.org are accepted, here and by vLLM.

    ./bazelw run //tools/bench/structured:acceptance -- --tokenizer FOLDER

FOLDER is any Hugging Face model's, whose tokenizer vLLM wants. vLLM is installed once, below
--folder; without --tokenizer only this project's figure is printed. Accepted means that a request
with the schema is not refused: vLLM's back ends ignore keywords that they do not know, or write
what the schema forbids.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from absl import app, flags
from pagemill.structured.grammar import GrammarError
from tqdm import tqdm

from tests.json_schema.schemas import Matchers
from tools.bench.compare.environment import Environment, PeerError
from tools.bench.compare.peers.vllm_server import Vllm
from tools.bench.structured.real_schemas import real_schemas

_TOKENIZER = flags.DEFINE_string("tokenizer", None, "Folder with a tokenizer. Default: no vLLM.")
_FOLDER = flags.DEFINE_string("folder", "~/.cache/pagemill-compare", "Folder of environments.")


def _here(schemas: Sequence[Any]) -> Iterator[str]:
    matchers = Matchers({})
    for schema in schemas:
        try:
            matchers.begin(schema)
            yield "accepted"
        except GrammarError:
            yield "refused"


def _by_vllm(schemas: Sequence[Any], tokenizer: str) -> Iterator[str]:
    environment = Environment(Path(_FOLDER.value).expanduser() / Vllm.environment)
    Vllm().install(environment)
    script = Path(__file__).with_name("vllm_acceptance.py")
    with subprocess.Popen(
        [environment.python, script, tokenizer],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        for schema in schemas:
            process.stdin.write(json.dumps(schema) + "\n")
            process.stdin.flush()
            yield process.stdout.readline().strip()
        process.stdin.close()


def _main(argv: Sequence[str]) -> None:
    del argv
    schemas = list(real_schemas(Path(os.environ["PAGEMILL_REAL_SCHEMAS"])).values())
    looks = {"pagemill": _here(schemas)}
    if _TOKENIZER.value:
        looks["vLLM"] = _by_vllm(schemas, _TOKENIZER.value)
    for name, answers in looks.items():
        try:
            counts = Counter(tqdm(answers, name, len(schemas), leave=False))
        except (OSError, PeerError) as error:
            sys.exit(f"{name}: {error}")
        print(f"{name}: " + ", ".join(f"{count} {what}" for what, count in counts.most_common()))


if __name__ == "__main__":
    app.run(_main)
