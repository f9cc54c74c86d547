"""Why a model could not be found or fetched."""

from pagemill.weights.errors import WeightsError


class FetchError(WeightsError):
    """A model that is not there and could not be fetched; the message says what to do about it."""
