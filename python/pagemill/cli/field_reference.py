"""docs/fields.md, from the list of sampling fields:

python -m pagemill.cli.field_reference > docs/fields.md
"""

import sys

import msgspec

from pagemill.config.sampling import FieldSpec, field_specs

_HEAD = """\
# Fields of requests

Made from the list of fields by `python -m pagemill.cli.field_reference`; a test compares. What
the fields do together stands in [the HTTP contract](http.md) and in [sampling](sampling.md).

## Sampling fields

Of `/v1/chat/completions` and `/v1/completions`, of `SamplingParams`, and as flags of `generate`,
`chat` and `complete`. A default of *model* is what `pagemill plan` shows for the model.

| field | range | default | meaning |
|---|---|---|---|
"""


def reference() -> str:
    """Returns the whole document."""
    fields = "".join(_field(spec) for spec in field_specs())
    return _HEAD + fields


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


if __name__ == "__main__":
    sys.stdout.write(reference())
