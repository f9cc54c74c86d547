"""How the matrix of each module is stored: by the scheme that the configuration states for it, or,
often that of lm_head, unquantized."""

from __future__ import annotations

from pagemill.quantization.base import Method, Scheme
from pagemill.quantization.unquantized import UNQUANTIZED
from pagemill.tensor.dtypes import SCALED_DTYPES
from pagemill.weights.declared import DeclaredTensors
from pagemill.weights.errors import MissingTensorError, WeightsError
from pagemill.weights.json_file import shown
from pagemill.weights.source import ModelSource

_SHOWN = 5


class StoredSchemes:
    """The schemes of the modules of one source."""

    def __init__(self, method: Method, source: ModelSource, tensors: DeclaredTensors) -> None:
        self._method = method
        self._source = source
        self._tensors = tensors
        self._stated: dict[str, Scheme] = {}

    def stated(self, module: str) -> Scheme:
        """The scheme that the configuration states."""
        if module not in self._stated:
            self._stated[module] = self._method.scheme(module)
        return self._stated[module]

    def has(self, module: str) -> bool:
        """True if `module` is stored by the scheme that is stated."""
        return self.stated(module).stores(self._tensors, module)

    def is_quantized(self, module: str) -> bool:
        """True if `module` is stored by a scheme that is stated."""
        return self.stated(module) is not UNQUANTIZED and self.has(module)

    def is_divided(self, module: str) -> bool:
        """True if the matrices of the stack `module` are stored one by one, under their numbers."""
        return self.has(f"{module}.0")

    def of(self, module: str) -> Scheme:
        """How the matrix of `module` is stored.

        Raises:
            WeightsError: it is missing, or it is quantized and the configuration says otherwise.
        """
        stated = self.stated(module)
        if stated.stores(self._tensors, module):
            return stated
        location = self._tensors.peek(f"{module}.weight")
        if location is not None and location.dtype not in SCALED_DTYPES:
            return UNQUANTIZED
        if location is not None:
            raise WeightsError(
                f"{self._source.path}: {location.name} is stored as {location.dtype}, but the"
                f" scheme of the configuration for {module} is {stated.name}; correct its"
                " quantization_config"
            )
        beside = sorted(
            name.removeprefix(f"{module}.")
            for name in map(self._source.name_of, self._source.tensors)
            if name.startswith(f"{module}.")
        )
        says = (
            f"; it has {', '.join(map(shown, beside[:_SHOWN]))}, but the scheme of the"
            f" configuration for it is {stated.name}; correct its quantization_config"
        )
        raise MissingTensorError(
            f"{self._source.path}: the tensor '{module}.weight' is missing{says if beside else ''}"
        )
