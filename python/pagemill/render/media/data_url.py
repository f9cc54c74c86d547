"""data: URLs, which hold files in base64."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any

from pagemill.render.errors import RenderError
from pagemill.render.media.motion_jpeg import MAX_FRAMES

_PORTION = 2**18  # characters: half a millisecond
_FRAMES = "data:video/jpeg;base64"


def is_data_url(url: str) -> bool:
    """Whether `url` holds its file."""
    return url[:5].lower() == "data:"


def has_audio(audio: Mapping[str, Any]) -> bool:
    """Whether the object of a part of type `input_audio` has a file."""
    data = audio.get("data")
    return isinstance(data, str) and data != ""


def audio_url(audio: Mapping[str, Any]) -> str:
    """The object of a part of type `input_audio` as a data: URL; "" if it has no file. Its format
    does not matter: files say what they are."""
    return f"data:audio/*;base64,{audio['data']}" if has_audio(audio) else ""


def data_of(url: str, max_bytes: int) -> bytes:
    """What a data: URL holds, which must be base64. Of type video/jpeg it may hold several files,
    with commas between; they become one, one behind another.

    Raises:
      RenderError: it is not one, or is too large.
    """
    head, comma, text = url.partition(",")
    if not comma or not head.lower().endswith(";base64"):
        raise RenderError("a data: URL must be data:TYPE;base64, and the file in base64")
    most_files = MAX_FRAMES if head.lower() == _FRAMES else 1
    if text.count(",") >= most_files:
        raise RenderError(f"a data: URL of this type holds at most {most_files} files")
    if len(text) > max_bytes * 4 // 3 + 4 * most_files:
        raise _too_large(max_bytes)
    try:
        data = b"".join(map(_decoded, text.split(",")))
    except (binascii.Error, ValueError):
        raise RenderError("a data: URL does not hold base64") from None
    if len(data) > max_bytes:
        raise _too_large(max_bytes)
    return data


def _decoded(text: str) -> bytes:
    """The file that `text` is in base64, decoded in portions: other threads run between them.

    Raises:
      ValueError: it is none.
    """
    starts = range(0, len(text), _PORTION)
    portions = [base64.b64decode(text[at : at + _PORTION], validate=True) for at in starts]
    if any(len(portion) != _PORTION // 4 * 3 for portion in portions[:-1]):
        raise ValueError("there is padding inside")
    return b"".join(portions)


def _too_large(max_bytes: int) -> RenderError:
    return RenderError(f"it is larger than {max_bytes} bytes")
