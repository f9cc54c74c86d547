"""docs/fields.md, from the lists of fields:

python -m pagemill.cli.field_reference > docs/fields.md
"""

import sys

import msgspec

from pagemill import _native
from pagemill.config.sampling import FieldSpec, field_specs
from pagemill.observe.metrics import RequestMetrics

_HEAD = """\
# Fields of requests, and metrics

Made from the lists of fields by `python -m pagemill.cli.field_reference`; a test compares. What
the fields do together stands in [the HTTP contract](http.md) and in [sampling](sampling.md).

## Sampling fields

Of `/v1/chat/completions` and `/v1/completions`, of `SamplingParams`, and as flags of `generate`,
`chat` and `complete`. A default of *model* is what `pagemill plan` shows for the model.

| field | range | default | meaning |
|---|---|---|---|
"""
_METRICS = """\

## Metrics

Of `/metrics`, all with the prefix `pagemill:`. Counters end in `_total`, histograms in `_bucket`,
`_sum` and `_count`. Labels are `model_name` and `engine`, except for `http_responses`, whose labels
are `path` and `status`; `request_success` has `finished_reason` as well.

| metric | type | meaning |
|---|---|---|
"""
_LIBRARIES = ("python_", "process_")  # the collectors of prometheus_client itself


def reference() -> str:
    """Returns the whole document."""
    fields = "".join(_field(spec) for spec in field_specs())
    return _HEAD + fields + _METRICS + "".join(sorted([*_engine_rows(), *_request_rows()]))


def _field(spec: FieldSpec) -> str:
    meta = spec.meta
    limits = ""
    if meta.gt is not None:
        limits = f"({_number(meta.gt)}, {_number(meta.le)}]"
    elif meta.ge is not None:
        limits = f"[{_number(meta.ge)}, {_number(meta.le)}]"
    default = "*model*" if "neutral" in spec.extra else _value(spec.default)
    return f"| `{spec.name}` | {limits} | {default} | {meta.description} |\n"


def _number(value: float | None) -> str:
    named: dict[float, str] = {
        2**31 - 1: "2^31 - 1",
        2**63 - 1: "2^63 - 1",
        -(2**63): "-2^63",
    }
    return "" if value is None else named.get(value, f"{value:g}")


def _value(value: object) -> str:
    return "none" if value in (None, msgspec.NODEFAULT) else str(value).lower()


def _engine_rows() -> list[str]:
    rows = [("kv_cache_usage_perc", "gauge", "share of KV blocks in use, 0 to 1")]
    rows += [(row[2], row[1], row[3]) for row in _native.EngineStats.fields if row[2]]
    return [f"| `{name}` | {kind} | {text} |\n" for name, kind, text in rows]


def _request_rows() -> list[str]:
    families = RequestMetrics("", 1).registry.collect()
    return [
        f"| `{family.name.removeprefix('pagemill:')}` | {family.type} |"
        f" {family.documentation[:1].lower()}{family.documentation[1:].rstrip('.')} |\n"
        for family in families
        if not family.name.startswith(_LIBRARIES)
    ]


if __name__ == "__main__":
    sys.stdout.write(reference())
