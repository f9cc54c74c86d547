"""Errors of a quantization_config."""

from pagemill.weights.errors import WeightsError


class QuantizationError(WeightsError):
    """A quantization that is not supported; the message names the method, the field and the
    supported values."""
