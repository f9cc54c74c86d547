from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tools.bench.function_calls.cases import Call, Expected, read_cases
from tools.bench.function_calls.scoring import matches

ROUTE = Expected("route", {"to": ["New York, NY", "NYC"], "km": [5], "fast": [True, ""]})


@pytest.mark.parametrize(
    ("arguments", "is_right"),
    [
        ({"to": "new york ny", "km": 5}, True),
        ({"to": "NYC", "km": 5.0, "fast": True}, True),
        ({"to": "NYC", "km": 5, "fast": False}, False),
        ({"to": "NYC", "km": 5, "fast": 1}, False),
        ({"to": "Boston", "km": 5}, False),
        ({"to": "NYC"}, False),
        ({"to": "NYC", "km": 5, "other": 1}, False),
        ({"to": "NYC", "km": "5"}, False),
    ],
)
def test_values(arguments: dict[str, Any], is_right: bool) -> None:
    assert matches([Call("route", arguments)], [ROUTE]) == is_right


def test_calls_are_compared_one_for_one() -> None:
    one, two = Expected("f", {"a": [1]}), Expected("f", {"a": [2]})
    calls = [Call("f", {"a": 2}), Call("f", {"a": 1})]
    assert matches(calls, [one, two])
    assert not matches(calls, [one, one])
    assert not matches(calls, [one])
    assert not matches(calls[:1], [one, two])
    assert not matches([Call("g", {"a": 1})], [one])
    assert not matches([], [one])


def test_nested_values() -> None:
    expected = Expected("f", {"at": [{"x": [1, 2], "y": [""]}], "names": [["a", "b"], ["c"]]})
    assert matches([Call("f", {"at": {"x": 2}, "names": ["A", "b"]})], [expected])
    assert not matches([Call("f", {"at": {"x": 3}, "names": ["a", "b"]})], [expected])
    assert not matches([Call("f", {"at": {"x": 2}, "names": ["a"]})], [expected])


def test_cases_are_in_terms_of_the_api(tmp_path: Path) -> None:
    parameters = {
        "type": "dict",
        "properties": {
            "type": {"type": "float", "description": "Which."},
            "pair": {"type": "tuple", "items": {"type": "any"}},
        },
        "required": ["type"],
    }
    function = {"name": "math.area", "description": "Area.", "parameters": parameters}
    question = {"id": "x_0", "question": [[{"role": "user", "content": "?"}]]}
    (tmp_path / "x.json").write_text(json.dumps({**question, "function": [function]}) + "\n")
    answer = {"id": "x_0", "ground_truth": [{"math.area": {"type": [1.5]}}]}
    (tmp_path / "x_answers.json").write_text(json.dumps(answer) + "\n")
    (case,) = read_cases("x", tmp_path)
    assert case.expected == [Expected("math_area", {"type": [1.5]})]
    assert case.parameters("math_area") == {
        "type": "object",
        "properties": {
            "type": {"type": "number", "description": "Which."},
            "pair": {"type": "array", "items": {}},
        },
        "required": ["type"],
    }
    assert case.parameters("math.area") is None
