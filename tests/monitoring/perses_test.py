"""The dashboard of Perses is that of Grafana, and whole."""

from __future__ import annotations

import json
from typing import Any

from tests.monitoring.perses import GRAFANA, PERSES, perses_text


def _load(path: Any) -> dict[str, Any]:
    return json.loads(path.read_text(encoding="utf-8"))


def test_the_file_is_made_of_grafanas() -> None:
    assert PERSES.read_text(encoding="utf-8") == perses_text(), (
        "the docstring of perses.py says how to make it again"
    )


def test_every_query_is_there() -> None:
    targets = [
        (target["expr"], target["legendFormat"])
        for panel in _load(GRAFANA)["panels"]
        for target in panel.get("targets", ())
    ]
    specs = [
        query["spec"]["plugin"]["spec"]
        for panel in _load(PERSES)["spec"]["panels"].values()
        for query in panel["spec"]["queries"]
    ]
    assert [(spec["query"], spec["seriesNameFormat"]) for spec in specs] == targets
    assert len(targets) > 30


def test_every_panel_is_in_one_grid_and_none_overlap() -> None:
    spec = _load(PERSES)["spec"]
    placed: list[str] = []
    for grid in spec["layouts"]:
        cells: list[tuple[int, int]] = []
        for item in grid["spec"]["items"]:
            placed.append(item["content"]["$ref"].removeprefix("#/spec/panels/"))
            assert item["y"] >= 0 and item["x"] + item["width"] <= 24
            columns = range(item["x"], item["x"] + item["width"])
            rows = range(item["y"], item["y"] + item["height"])
            cells += [(x, y) for x in columns for y in rows]
        assert len(set(cells)) == len(cells), grid["spec"]["display"]["title"]
    assert sorted(placed) == sorted(spec["panels"])


def test_variables_are_those_that_queries_use() -> None:
    dashboard = _load(PERSES)
    names = {each["spec"]["name"] for each in dashboard["spec"]["variables"]}
    text = json.dumps(dashboard["spec"]["panels"])
    assert names == {"model", "instance"}
    assert all(f"${name}" in text for name in names) and "$datasource" not in text
