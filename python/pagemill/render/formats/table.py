"""Formats by name. To add one: a file that implements `base.Format`, and a row here."""

from __future__ import annotations

import importlib
from collections.abc import Mapping

from pagemill.render.errors import RenderError
from pagemill.render.formats.base import Format

TOOL_FORMATS: Mapping[str, str] = {
    "hermes": "pagemill.render.formats.hermes:Hermes",
}
REASONING_FORMATS: Mapping[str, str] = {
    "think": "pagemill.render.formats.think:Think",
}
NONE = "none"


def choose(
    table: Mapping[str, str], name: str | None, template: str, flag: str
) -> type[Format] | None:
    """Returns the format `name`, or without a name the one that `template` clearly has.

    Args:
      table: TOOL_FORMATS or REASONING_FORMATS.
      name: a name of the table, "none", or None.
      template: source of the model's chat template; "" if it has none.
      flag: the option that `name` came from.

    Raises:
      RenderError: the table does not have `name`.
    """
    if name == NONE:
        return None
    if name is not None:
        if name not in table:
            known = ", ".join([*sorted(table), NONE])
            raise RenderError(f"{flag}: unknown format {name[:40]!r}; known are {known}")
        return _load(table[name])
    found = [kind for kind in map(_load, table.values()) if kind.is_in(template)]
    return found[0] if len(found) == 1 else None


def _load(path: str) -> type[Format]:
    module, _, name = path.partition(":")
    kind: type[Format] = vars(importlib.import_module(module))[name]
    return kind
