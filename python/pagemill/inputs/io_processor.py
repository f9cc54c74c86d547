"""Plugins that read the `data` of a request of a model that pools, and make its answer.

    class Sentences:
        def __init__(self, pooled: Pooled) -> None: ...

        def parse_data(self, data: Any) -> Any: ...
        def pre_process(self, parsed: Any, request_id: str) -> Sequence[str | list[int]]: ...
        def post_process(self, parsed: Any, rows: Sequence[np.ndarray], request_id: str) -> Any: ...

A package names its plugins by entry points, and `--io-processor-plugin sentences` chooses one:

    [project.entry-points."pagemill.io_processors"]
    sentences = "my_package:Sentences"
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from pagemill.config import ConfigError
from pagemill.config.plugins import find_plugin
from pagemill.inputs.task import Pooled

GROUP = "pagemill.io_processors"


class IOProcessor(Protocol):
    """1. Methods are called in threads, several at once. They have the rights of the server.
    2. A ValueError of the first two refuses the request, and the client reads its message. Any
       other exception is an internal error.
    3. `parse_data` and `pre_process` bound what they make of a request.
    """

    def parse_data(self, data: Any) -> Any:
        """What the other methods get of the request's `data`, a JSON value."""
        ...

    def pre_process(self, parsed: Any, request_id: str) -> Sequence[str | list[int]]:
        """The prompts that the model computes: texts, or token ids."""
        ...

    def post_process(self, parsed: Any, rows: Sequence[np.ndarray], request_id: str) -> Any:
        """The `data` of the response, a JSON value. `rows` are of the prompts, float32 [width], or
        [tokens, width] of a model with a row for each token, with the activation of a classifier.
        """
        ...


MakeIOProcessor = Callable[[Pooled], IOProcessor]
"""A plugin's entry point: called once in each process, with what the model gives."""


def find_io_processor(name: str) -> MakeIOProcessor:
    """The plugin `name` of an installed package.

    Raises:
        ConfigError: no package has it, or it cannot be imported.
    """
    return find_plugin(GROUP, name, "--io-processor-plugin")


def open_io_processor(name: str | None, pooled: Pooled | None) -> IOProcessor | None:
    """The plugin `name` for a model that gives `pooled`; None without a name.

    Raises:
        ConfigError: it cannot be loaded, or the model does not pool.
    """
    if name is None:
        return None
    if pooled is None:
        raise ConfigError(
            f"--io-processor-plugin {name} is for models that pool; this one is loaded with"
            " --task generate"
        )
    make = find_io_processor(name)
    try:
        return make(pooled)
    except Exception as error:  # a plugin may raise anything
        raise ConfigError(
            f"--io-processor-plugin {name}: {type(error).__name__}: {error}"
        ) from error
