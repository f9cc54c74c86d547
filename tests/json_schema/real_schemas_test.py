"""Schemas of schemastore.org: how many are accepted, and that random outputs are valid.

`pytest -s` prints what is refused, what is invalid, and times.
"""

from __future__ import annotations

import json
import os
import random
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import referencing
import referencing.exceptions
from jsonschema import Draft201909Validator, Draft202012Validator, validators
from pagemill.structured.expansion import metaschemas
from pagemill.structured.grammar import GrammarError
from pagemill.structured.testing.byte_tokenizer import MODEL_VOCAB
from pagemill.structured.testing.walks import random_walk
from referencing.jsonschema import DRAFT7

from tests.json_schema.schemas import Begin, Matchers
from tools.bench.structured.real_schemas import real_schemas

_NUM_WALKS = int(os.environ.get("PAGEMILL_TEST_WALKS", "50"))
_MIN_ACCEPTED = 0.95
_SECONDS_A_SCHEMA = 20.0
_ANNOTATE_FORMAT = (Draft201909Validator, Draft202012Validator)
_HTTP = "http://json-schema.org/draft-"


class Oracle:
    """Validates with `jsonschema`, which finds the same documents."""

    def __init__(self, documents: dict[str, Any]) -> None:
        self._documents = {**metaschemas(), **documents}
        self._registry = referencing.Registry[Any](retrieve=self._retrieve)

    def errors(self, schema: Any, text: bytes) -> list[str]:
        """What is wrong with `text`; also that it cannot be said."""
        draft = schema
        if isinstance(schema, dict) and isinstance(schema.get("$schema"), str):
            draft = {"$schema": schema["$schema"].replace("https://json-schema.org/draft-", _HTTP)}
        kind = validators.validator_for(draft, default=Draft202012Validator)
        is_annotation = kind in _ANNOTATE_FORMAT and "$schema" in schema
        checker = None if is_annotation else kind.FORMAT_CHECKER
        validator = kind(schema, registry=self._registry, format_checker=checker)
        try:
            return [error.message for error in validator.iter_errors(json.loads(text))]
        except Exception as error:  # patterns that are none in Python, references to nothing
            return [f"the oracle failed: {error!r}"]

    def _retrieve(self, uri: str) -> referencing.Resource[Any]:
        document = self._documents.get(uri.rstrip("#"))
        if document is None:
            raise referencing.exceptions.NoSuchResource(ref=uri)
        return referencing.Resource.from_contents(document, default_specification=DRAFT7)


def test_what_is_written_is_valid() -> None:
    schemas = real_schemas(Path(os.environ["PAGEMILL_REAL_SCHEMAS"]))
    documents: dict[str, Any] = {}
    for url, schema in schemas.items():
        documents[url.rstrip("#")] = schema
        name = (schema.get("$id") or schema.get("id")) if isinstance(schema, dict) else None
        if isinstance(name, str):
            documents.setdefault(name.rstrip("#"), schema)
    matchers, oracle = Matchers(documents), Oracle(documents)
    counts: Counter[str] = Counter()
    compiled: list[float] = []
    masks: list[float] = []
    for url, schema in schemas.items():
        if isinstance(schema, dict) and not (schema.get("$id") or schema.get("id")):
            schema = {**schema, "$id": url}
        began = time.perf_counter()
        try:
            begin = matchers.begin(schema)
        except GrammarError as error:
            counts["refused"] += 1
            print(f"refused: {url}: {error}")
            continue
        compiled.append(time.perf_counter() - began)
        masks.append(_mask_seconds(begin))
        counts["accepted"] += 1
        _walk(url, schema, begin, oracle, counts)
    print(dict(counts), f"of {len(schemas)}")
    for name, times in (("compile", compiled), ("first mask", masks)):
        p50, p99 = np.percentile(times, (50, 99))
        print(f"{name}: p50 {1e3 * p50:.2f} ms, p99 {1e3 * p99:.2f} ms, at most {max(times):.2f} s")
    assert counts["accepted"] >= _MIN_ACCEPTED * len(schemas)
    assert not counts["dead"]
    assert counts["invalid"] <= 0.002 * counts["ended"]


def _mask_seconds(begin: Begin) -> float:
    matcher = begin()
    mask = np.zeros((MODEL_VOCAB + 31) // 32, np.uint32)
    began = time.perf_counter()
    matcher.fill_mask(mask)
    return time.perf_counter() - began


def _walk(url: str, schema: Any, begin: Begin, oracle: Oracle, counts: Counter[str]) -> None:
    rng = random.Random(url)
    end = time.monotonic() + _SECONDS_A_SCHEMA
    for _ in range(_NUM_WALKS):
        walk = random_walk(begin, rng, free=120, most=1500)
        counts["dead"] += walk.is_dead
        if walk.is_dead:
            print(f"dead: {url}: {walk.text[-200:]!r}")
        if walk.is_ended:
            counts["ended"] += 1
            errors = oracle.errors(schema, walk.text)
            failed = any(error.startswith("the oracle failed") for error in errors)
            counts["oracle failed" if failed else "invalid"] += bool(errors)
            if errors:
                print(f"invalid: {url}: {errors[0][:300]}")
        if time.monotonic() > end:
            counts["cut short"] += 1
            break
