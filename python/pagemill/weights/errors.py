"""Errors of a model that is found, fetched or read."""


class WeightsError(ValueError):
    """A weight file is truncated, corrupt, or of an unsupported kind; the message names the file
    and the error."""


class MissingTensorError(WeightsError):
    """A model needs a tensor that its files do not contain."""


class UnusedTensorError(WeightsError):
    """A model's files contain tensors that no layer uses: the model does not match its
    configuration, or a part of it is not supported."""


class FetchError(WeightsError):
    """A model does not exist and could not be fetched; the message says what to do about it."""


def lfs_hint(start: bytes) -> str:
    """For the end of the error of a file that begins with `start`, if Git LFS has left a pointer in
    place of the file; "" otherwise."""
    if not start.startswith(b"version https://git-lfs."):
        return ""
    return ": it is a pointer of Git LFS, not the file; run `git lfs pull` in its folder"
