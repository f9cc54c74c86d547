"""The dashboard of Grafana as one of Perses: the same panels, queries and variables.

    PYTHONPATH=. python3 -m tests.monitoring.perses > docs/monitoring/perses_dashboard.json

Source of the format: docs/api/dashboard.md and docs/api/variable.md of Perses, and the schemas of
its plug-ins TimeSeriesChart and PrometheusTimeSeriesQuery.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[2] / "docs" / "monitoring"
GRAFANA, PERSES = FOLDER / "grafana_dashboard.json", FOLDER / "perses_dashboard.json"
_FORMATS: dict[str, dict[str, Any]] = {
    "percentunit": {"unit": "percent-decimal"},
    "reqps": {"unit": "requests/sec"},
    "s": {"unit": "seconds"},
    "short": {"unit": "decimal", "shortValues": True},
}


def perses_dashboard(grafana: dict[str, Any]) -> dict[str, Any]:
    """Returns the dashboard that shows what `grafana` does."""
    queries = [each for each in grafana["templating"]["list"] if each["type"] == "query"]
    charts = [panel for panel in grafana["panels"] if panel["type"] == "timeseries"]
    return {
        "kind": "Dashboard",
        "metadata": {"name": grafana["uid"], "project": grafana["uid"]},
        "spec": {
            "display": {"name": grafana["title"]},
            "duration": grafana["time"]["from"].removeprefix("now-"),
            "refreshInterval": grafana["refresh"],
            "variables": [_variable(each) for each in queries],
            "panels": {_key(panel): _panel(panel) for panel in charts},
            "layouts": _layouts(grafana["panels"]),
        },
    }


def perses_text() -> str:
    """Returns what the file of the dashboard should hold."""
    grafana = json.loads(GRAFANA.read_text(encoding="utf-8"))
    return json.dumps(perses_dashboard(grafana), indent=1) + "\n"


def _variable(variable: dict[str, Any]) -> dict[str, Any]:
    found = re.fullmatch(r"label_values\((.+), (\w+)\)", variable["query"])
    assert found is not None, variable["query"]
    return {
        "kind": "ListVariable",
        "spec": {
            "name": variable["name"],
            "display": {"name": variable["label"]},
            "allowAllValue": variable["includeAll"],
            "allowMultiple": variable["multi"],
            "customAllValue": variable["allValue"],
            "defaultValue": variable["current"]["value"],
            "plugin": {
                "kind": "PrometheusLabelValuesVariable",
                "spec": {"labelName": found[2], "matchers": [found[1]]},
            },
        },
    }


def _key(panel: dict[str, Any]) -> str:
    return f"panel_{panel['id']}"


def _panel(panel: dict[str, Any]) -> dict[str, Any]:
    shown = panel["fieldConfig"]["defaults"]
    return {
        "kind": "Panel",
        "spec": {
            "display": {"name": panel["title"], "description": panel["description"]},
            "plugin": {
                "kind": "TimeSeriesChart",
                "spec": {
                    "legend": {"position": "bottom", "mode": "list"},
                    "yAxis": {"format": _FORMATS[shown["unit"]], "min": shown["min"]},
                },
            },
            "queries": [_query(target) for target in panel["targets"]],
        },
    }


def _query(target: dict[str, Any]) -> dict[str, Any]:
    spec = {"query": target["expr"], "seriesNameFormat": target["legendFormat"]}
    plugin = {"kind": "PrometheusTimeSeriesQuery", "spec": spec}
    return {"kind": "TimeSeriesQuery", "spec": {"plugin": plugin}}


def _layouts(panels: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A grid for each row, whose items count from its top."""
    grids: list[dict[str, Any]] = []
    top = 0
    for panel in panels:
        place = panel["gridPos"]
        if panel["type"] == "row":
            top = place["y"] + place["h"]
            display = {"title": panel["title"], "collapse": {"open": not panel["collapsed"]}}
            grids.append({"kind": "Grid", "spec": {"display": display, "items": []}})
            continue
        item = {"x": place["x"], "y": place["y"] - top, "width": place["w"], "height": place["h"]}
        item["content"] = {"$ref": f"#/spec/panels/{_key(panel)}"}
        grids[-1]["spec"]["items"].append(item)
    return grids


if __name__ == "__main__":
    sys.stdout.write(perses_text())
