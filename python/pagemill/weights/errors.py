"""What a model on disk can be guilty of."""


class WeightsError(ValueError):
    """A weight file is truncated, corrupt, or of a kind that is not supported; the message names
    the file and says what is wrong with it."""


class MissingTensorError(WeightsError):
    """A model wants a tensor that its files do not hold."""


class UnusedTensorError(WeightsError):
    """A model's files hold tensors that no layer asks for: the model is not what its configuration
    says, or a part of it is not supported."""
