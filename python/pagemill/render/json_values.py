"""Values of unknown origin, narrowed: what files and requests hold is checked before its use."""

from collections.abc import Mapping
from typing import Any, cast


def as_object(value: Any) -> Mapping[str, Any] | None:
    """Returns `value` if it is an object (a mapping)."""
    return cast(Mapping[str, Any], value) if isinstance(value, Mapping) else None


def as_array(value: Any) -> list[Any] | None:
    """Returns `value` as a list if it is an array (a list or a tuple)."""
    return list(cast(list[Any], value)) if isinstance(value, (list, tuple)) else None
