"""The task that every client library gets: two tools in turn, then an answer.

The model is too small to decide for itself, so each turn says by `tool_choice` what to call. The
arguments are then valid by the tool's schema, and these schemas leave few choices.
"""

from __future__ import annotations

from typing import Any, Literal

import pydantic

City = Literal["Paris", "Rome"]
QUESTION = "Is it warm in Paris? Find the city's station, then its temperature."
FRANCE = "What is the capital of France? Answer in one word."


class Report(pydantic.BaseModel):
    """A structured answer."""

    city: City
    temperature: int = pydantic.Field(ge=-50, le=50)
    warm: bool


def find_station(city: City) -> str:
    """The weather station of a city."""
    return f"station-{city.lower()}"


def read_temperature(station: Literal["station-paris", "station-rome"]) -> str:
    """The temperature at a station, in degrees Celsius."""
    return {"station-paris": "21", "station-rome": "27"}[station]


def _one_choice(name: str, choices: list[str]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {name: {"type": "string", "enum": choices}},
        "required": [name],
        "additionalProperties": False,
    }


TOOLS = {"find_station": find_station, "read_temperature": read_temperature}
PARAMETERS = {
    "find_station": _one_choice("city", ["Paris", "Rome"]),
    "read_temperature": _one_choice("station", ["station-paris", "station-rome"]),
}
