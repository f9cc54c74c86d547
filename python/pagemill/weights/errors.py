"""Errors of a model on disk."""


class WeightsError(ValueError):
    """A weight file is truncated, corrupt, or of an unsupported kind; the message names the file
    and the error."""


class MissingTensorError(WeightsError):
    """A model needs a tensor that its files do not contain."""


class UnusedTensorError(WeightsError):
    """A model's files contain tensors that no layer uses: the model does not match its
    configuration, or a part of it is not supported."""
