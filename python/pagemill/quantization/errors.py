"""What a quantization_config can be guilty of."""

from pagemill.weights.errors import WeightsError


class QuantizationError(WeightsError):
    """A quantization that is not supported; the message names the method, the field and what is."""
