"""docs/metrics.md, from the tables of metrics:

python -m pagemill.cli.metric_reference > docs/metrics.md
"""

import sys

from pagemill import _native
from pagemill.observe.catalog import CatalogEntry, catalog
from pagemill.observe.families import MODEL_LABELS

_HEAD = """\
# Metrics

Made from the tables of metrics by `python -m pagemill.cli.metric_reference`; a test compares.

`GET /metrics` has these families with the prefix `pagemill:`, and those of the Python process.
Counters end in `_total`; histograms have `_bucket`, `_sum` and `_count`, summaries the last two.
Every family has the labels `model_name` and `engine`, unless its labels are marked with *only*.
With `--api-server-count` each process answers with the counts of all. With `--data-parallel-size`
`engine` is the number of one; else it is 0.

- `--metrics-compatibility vllm` exposes the families of the last column under that name, too.
- `tenant` and `key` have at most `--max-metrics-tenants` values; further ones are `other`.
- `handler` and `path` are routes of the server, `none` for a path that is none.
- Dashboards of [Grafana](monitoring/grafana_dashboard.json) and of
  [Perses](monitoring/perses_dashboard.json), and [alert rules](monitoring/alerts.yaml), use these
  names; tests check that.

| metric | type | labels | meaning | `--metrics-compatibility vllm` |
|---|---|---|---|---|
"""


def reference() -> str:
    """Returns the whole document."""
    return _HEAD + "".join(_row(entry) for entry in catalog(_native.EngineStats.fields))


def _row(entry: CatalogEntry) -> str:
    own = [f"`{label}`" for label in entry.labels if label not in MODEL_LABELS]
    labels = ", ".join(own)
    if MODEL_LABELS[0] not in entry.labels:
        labels = f"*only* {labels}"
    name = f"`{entry.reference}`" if entry.reference else ""
    text = entry.help.replace("|", "\\|")
    text = text if text[1:2].isupper() else text[:1].lower() + text[1:]
    return f"| `{entry.name}` | {entry.kind} | {labels} | {text} | {name} |\n"


if __name__ == "__main__":
    sys.stdout.write(reference())
