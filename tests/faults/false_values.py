"""False values for configurations and headers, and what loading a model with them may do."""

from __future__ import annotations

import copy
import json
import math
import time
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from pagemill.models.base import ModelConfigError
from pagemill.runner.build import BuildOptions, build
from pagemill.weights import ModelSource, WeightsError

# Time of the processor for one model of any kind. A slow one takes 1.2 s for the worst; what is not
# bounded takes minutes.
MAX_SECONDS = 3.0
MAX_GROWTH_BYTES = 256 * 2**20  # of the process, over all models together

DEEP = "@deep"  # in JSON, this many lists in one another
DEPTH = 300
NUMBERS = (0, -1, 1, 2, 3, 7, 64, 4096, 2**31 - 1, 2**31, 2**53, 2**63, -(2**63))
VALUES = (
    *NUMBERS,
    *(10**30, 10**400, 0.0, -1.0, 0.5, 1e-300, 1e-30, 1e30, 1e300, math.nan, math.inf, -math.inf),
    *("", "8", "yarn", "linear", "llama3", "x" * 5000, True, False, None),
    *([], [1], [[]], ["full_attention"], {}, {"factor": 0}, DEEP),
)
FUZZ = settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
Place = tuple[Any, ...]
"""The keys and indices on the way to a value."""


def load(path: Path) -> str | None:
    """Opens and builds the model; returns the error message, if any."""
    begin = time.process_time()
    try:
        build(ModelSource.open(path), BuildOptions())
        sentence = None
    except (WeightsError, ModelConfigError) as error:
        sentence = str(error)
        assert sentence and "\n" not in sentence and len(sentence) < 600 + len(str(path))
    assert time.process_time() - begin < MAX_SECONDS, f"{path} took too long: {sentence}"
    return sentence


def places(value: Any, path: Place = ()) -> list[Place]:
    """The place of every element of `value`."""
    if isinstance(value, dict):
        inner = [places(item, (*path, key)) for key, item in value.items()]
    elif isinstance(value, list):
        inner = [places(item, (*path, index)) for index, item in enumerate(value)]
    else:
        inner = []
    return [place for found in inner for place in found] + ([path] if path else [])


def put(value: Any, place: Place, item: Any) -> None:
    """Sets the element of `value` at `place`."""
    for step in place[:-1]:
        value = value[step]
    value[place[-1]] = item


def lie(draw: st.DataObject, value: Any) -> None:
    """Replaces one to three elements of `value` by others."""
    for _ in range(draw.draw(st.integers(1, 3))):
        place, item = draw.draw(st.sampled_from(places(value))), draw.draw(st.sampled_from(VALUES))
        put(value, place, copy.deepcopy(item))


def as_json(value: Any) -> str:
    """`value` as JSON, with deep lists in place of DEEP."""
    return json.dumps(value).replace(f'"{DEEP}"', "[" * DEPTH + "]" * DEPTH)
