"""The dashboard and the alert rules use metrics and labels that there are."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from pagemill import _native
from pagemill.observe.catalog import catalog
from pagemill.observe.families import PREFIX

from tests.monitoring.promql import errors

_FOLDER = Path(__file__).parents[2] / "docs" / "monitoring"
_CATALOG = catalog(_native.EngineStats.fields)
_WORD = re.compile(r"[\w:]+")
LABELS = {
    PREFIX + series: frozenset({*entry.labels, *(("le",) if series.endswith("_bucket") else ())})
    for entry in _CATALOG
    for series in entry.series
} | {"up": frozenset[str]()}


def _dashboard() -> dict[str, Any]:
    return json.loads((_FOLDER / "grafana_dashboard.json").read_text(encoding="utf-8"))


def _targets() -> Iterator[tuple[str, dict[str, str]]]:
    for panel in _dashboard()["panels"]:
        for target in panel.get("targets", ()):
            yield panel["title"], target


def _rules() -> list[dict[str, Any]]:
    (group,) = yaml.safe_load((_FOLDER / "alerts.yaml").read_text(encoding="utf-8"))["groups"]
    return group["rules"]


def test_every_query_of_the_dashboard_has_metrics_that_exist() -> None:
    found = [(title, *errors(target["expr"], LABELS)) for title, target in _targets()]
    assert len(found) > 30
    assert [each for each in found if each[1:]] == []


def test_legends_name_labels_by_which_their_query_is_grouped() -> None:
    for title, target in _targets():
        for label in re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]):
            assert re.search(rf"by \([^)]*\b{label}\b", target["expr"]), title


def test_variables_of_the_dashboard() -> None:
    dashboard = _dashboard()
    variables = {each["name"]: each for each in dashboard["templating"]["list"]}
    for name, label in (("model", "model_name"), ("instance", "instance")):
        query = re.fullmatch(r"label_values\(([\w:]+), (\w+)\)", variables[name]["query"])
        assert query is not None
        assert query[1] in LABELS
        assert query[2] == label
    used = set(re.findall(r"\$\{?(\w+)", json.dumps(dashboard["panels"]))) - {"__rate_interval"}
    assert used == set(variables)


def test_panels_do_not_overlap() -> None:
    panels = _dashboard()["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    cells = [
        (x, y)
        for panel in panels
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]
    assert len(set(cells)) == len(cells)
    assert max(x for x, _ in cells) < 24


def test_every_alert_has_metrics_that_exist_and_says_what_to_do() -> None:
    rules = _rules()
    assert len({rule["alert"] for rule in rules}) == len(rules) > 8
    for rule in rules:
        assert list(errors(rule["expr"], LABELS)) == [], rule["alert"]
        assert rule["labels"]["severity"] in ("warning", "critical")
        assert rule["annotations"]["summary"] and rule["annotations"]["description"]
        if "for" in rule:
            assert re.fullmatch(r"\d+[smh]", rule["for"])
        known = {"instance"}.union(*(LABELS.get(word, ()) for word in _WORD.findall(rule["expr"])))
        for label in re.findall(r"\$labels\.(\w+)", str(rule["annotations"])):
            assert label in known


@pytest.mark.parametrize(
    ("query", "error"),
    [
        ("pagemill:nope_total", "unknown name pagemill:nope_total"),
        ("rate(pagemill:num_preemptions[5m])", "unknown name pagemill:num_preemptions"),
        ("sum(pagemill:num_requests_running", "a parenthesis is not closed"),
        ("sum by (tenant) (pagemill:num_requests_running)", "grouped by tenant"),
        ('pagemill:num_requests_running{tenant="a"}', "has no label tenant"),
        ("pagemill:num_requests_running{tenant=a}", "not a selector"),
        ("averages(pagemill:num_requests_running)", "unknown name averages"),
        ("pagemill:num_requests_running > ?", "not understood"),
        ("1 > 0", "no metric"),
    ],
)
def test_a_wrong_query_is_found(query: str, error: str) -> None:
    assert any(error in each for each in errors(query, LABELS))
