"""Why a schema cannot be used, and a bound on the work that it makes."""

from __future__ import annotations


class SchemaError(ValueError):
    """The schema's fault; `str()` says where and why."""


class UnwritableError(SchemaError):
    """A part of a schema cannot be honoured; what needs it is not written."""


class TooMuchError(SchemaError):
    """A schema makes more work than it may."""


class CycleError(SchemaError):
    """What a schema says of a value depends on itself."""


class Budget:
    """Work that one schema may make, in steps of some microseconds."""

    def __init__(self, steps: int) -> None:
        self._left = steps

    def spend(self, steps: int = 1) -> None:
        """Takes from what is left.

        Raises:
            TooMuchError: nothing is.
        """
        self._left -= steps
        if self._left < 0:
            raise TooMuchError("the schema combines too many parts; make it smaller")
