"""The adapters of an engine that was started with some."""

from __future__ import annotations

from pagemill.engine.adapters import Adapters
from pagemill.engine.core import EngineCore


def adapters_of(core: EngineCore) -> Adapters:
    """Fails the test if the engine has none."""
    adapters = core.bindings.adapters
    assert isinstance(adapters, Adapters)
    return adapters
