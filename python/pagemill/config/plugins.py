"""What installed packages add to tables of this one, by entry points (docs/plugins.md).

A table has a group; an entry's name is that of its row, and its value is what the row is:

    [project.entry-points."pagemill.models"]
    MyModelForCausalLM = "my_package:MY_MODEL"

A table looks here for a name that it lacks, so plugins add rows and replace none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pagemill.config.fields import ConfigError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint


def entries(group: str) -> list[EntryPoint]:
    """The entries of `group`, by name. Looks through all installed packages, in some 20 ms."""
    import importlib.metadata  # here, because it takes 30 ms and most names need no plugin

    return sorted(importlib.metadata.entry_points(group=group), key=lambda entry: entry.name)


def load_plugin(group: str, name: str) -> Any:
    """What the entry `name` of `group` stands for, imported; None if no package has it.

    Raises:
        ConfigError: it cannot be imported.
    """
    for entry in entries(group):
        if entry.name == name:
            return loaded(entry)
    return None


def find_plugin(group: str, name: str, option: str) -> Any:
    """What the entry `name` of `group` stands for, which `option` names.

    Raises:
        ConfigError: no package has it, or it cannot be imported.
    """
    found = load_plugin(group, name)
    if found is None:
        known = ", ".join(entry.name for entry in entries(group)) or "none"
        raise ConfigError(
            f"{option}: no installed package has the plugin {name!r} in the group {group}; there"
            f" are: {known}"
        )
    return found


def loaded(entry: EntryPoint) -> Any:
    """What `entry` stands for, imported.

    Raises:
        ConfigError: it cannot be imported.
    """
    try:
        return entry.load()
    except Exception as error:  # importing a plugin may raise anything
        raise ConfigError(
            f"the plugin {entry.name} ({entry.group}, {entry.value}) cannot be imported:"
            f" {type(error).__name__}: {error}"
        ) from error
