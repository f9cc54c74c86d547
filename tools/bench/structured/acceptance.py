"""How many real schemas servers accept for structured output: each is asked for one token.

    ./bazelw run //tools/bench/structured:acceptance -- --urls http://127.0.0.1:8000

Prints what each server refuses, and counts. A server that takes longer than `--timeout_s` does not
accept.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
from absl import app, flags

from tools.bench.structured.real_schemas import real_schemas

_URLS = flags.DEFINE_list("urls", ["http://127.0.0.1:8000"], "The servers.")
_TIMEOUT_S = flags.DEFINE_float("timeout_s", 60, "For each schema, in seconds.", lower_bound=0)
_NUM_SCHEMAS = flags.DEFINE_integer("num_schemas", 0, "The first of them; 0: all.")


def _refusal(client: httpx.Client, model: str, schema: Any) -> str | None:
    """Why the server does not take `schema`; None if it does."""
    body = {
        "model": model,
        "prompt": "JSON:",
        "max_tokens": 1,
        "structured_outputs": {"json": json.dumps(schema)},
    }
    try:
        response = client.post("/v1/completions", json=body)
    except httpx.HTTPError as error:
        return repr(error)
    return f"{response.status_code} {response.text[:300]}" if response.is_error else None


def _num_accepted(url: str, schemas: dict[str, Any]) -> int:
    with httpx.Client(base_url=url, timeout=_TIMEOUT_S.value) as client:
        model = client.get("/v1/models").raise_for_status().json()["data"][0]["id"]
        accepted = 0
        for name, schema in schemas.items():
            refusal = _refusal(client, model, schema)
            accepted += refusal is None
            if refusal is not None:
                print(f"{url} refuses {name}: {refusal}", flush=True)
    return accepted


def _main(argv: Sequence[str]) -> None:
    del argv
    logging.getLogger("httpx").setLevel(logging.WARNING)
    schemas = real_schemas(Path(os.environ["PAGEMILL_REAL_SCHEMAS"]))
    schemas = dict(list(schemas.items())[: _NUM_SCHEMAS.value or None])
    accepted = {url: _num_accepted(url, schemas) for url in _URLS.value}
    for url, number in accepted.items():
        print(f"{url}: {number} of {len(schemas)} accepted")


if __name__ == "__main__":
    app.run(_main)
