"""Cases of the Berkeley Function Calling Leaderboard: a question, functions, the calls it asks for.

The files come from a package (third_party/datasets.md); Bazel says where they are.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# The folder of the file that the variable names.
_FILE = os.environ.get("PAGEMILL_BFCL_FILE", "")
CATEGORIES = ("simple_python", "multiple", "parallel")
_TYPES = {"dict": "object", "float": "number", "tuple": "array"}


@dataclass(frozen=True)
class Call:
    """A call of a function, as a model made it."""

    name: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True)
class Expected:
    """A call that a question asks for."""

    name: str
    arguments: Mapping[str, Sequence[Any]]
    """Parameter -> the values that are right; "" among them: it may be missing."""


@dataclass(frozen=True)
class Case:
    """A question to a model."""

    name: str
    messages: Sequence[Mapping[str, Any]]
    tools: Sequence[Mapping[str, Any]]
    """As `tools` of a chat completion."""
    expected: Sequence[Expected]

    def parameters(self, function: str) -> Mapping[str, Any] | None:
        """The JSON Schema of a function's arguments; None if there is no such function."""
        for tool in self.tools:
            if tool["function"]["name"] == function:
                return tool["function"]["parameters"]
        return None


def read_cases(category: str, folder: Path | None = None) -> list[Case]:
    """The cases of one of `CATEGORIES`, from `{category}.json` and `{category}_answers.json`.

    `folder`: default is that of the file that `PAGEMILL_BFCL_FILE` names.

    Raises:
        OSError: a file is missing.
    """
    folder = folder or Path(_FILE).parent
    questions = _lines(folder / f"{category}.json")
    answers = _lines(folder / f"{category}_answers.json")
    expected = {each["id"]: each["ground_truth"] for each in answers}
    return [_case(each, expected[each["id"]]) for each in questions]


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines() if line.strip()]


def _case(question: Mapping[str, Any], answers: Sequence[Mapping[str, Any]]) -> Case:
    tools = [
        {
            "type": "function",
            "function": {
                "name": _name(each["name"]),
                "description": each["description"],
                "parameters": _schema(each["parameters"]),
            },
        }
        for each in question["function"]
    ]
    expected = [
        Expected(_name(name), arguments) for each in answers for name, arguments in each.items()
    ]
    return Case(question["id"], question["question"][0], tools, expected)


def _name(name: str) -> str:
    # Names of tools have no dots in OpenAI's API.
    return name.replace(".", "_")


def _schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """JSON Schema from the cases' dialect, which has Python's names of types."""
    result: dict[str, Any] = {}
    for key, value in schema.items():
        if key == "type":
            if value != "any":
                result[key] = _TYPES.get(value, value)
        elif key == "properties":
            result[key] = {name: _schema(each) for name, each in value.items()}
        elif isinstance(value, dict):
            result[key] = _schema(value)
        else:
            result[key] = value
    return result
