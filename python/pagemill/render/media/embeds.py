"""Images and audio as embeddings in parts of messages: base64 of tensors, checked before their
numbers are read.

embeds = MediaEmbeds(width=4096, max_bytes=2**27)
media = embeds.read("image", {"image_embeds": text, "image_grid_thw": [1, 16, 12]})
part = embeds_part("image", rows, {"image_grid_thw": [1, 16, 12]})
"""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from pagemill.inputs.media_embeds import GRID, SHAPE, embeds_param, media_of_embeds
from pagemill.inputs.media_kind import MediaKind
from pagemill.inputs.prepared_media import PreparedMedia
from pagemill.render.errors import RenderError
from pagemill.weights.errors import WeightsError
from pagemill.weights.new_file import safetensors_header
from pagemill.weights.sent_tensor import SentTensor


@dataclass(frozen=True, slots=True)
class MediaEmbeds:
    """Reads the embeddings of images and audio, rows of `width` numbers (None: of any number),
    which have at most `max_bytes` in f32. Thread-safe."""

    width: int | None
    max_bytes: int

    def read(self, kind: MediaKind, fields: Mapping[str, Any]) -> PreparedMedia:
        """The image or audio of a part: `fields` has base64 of a tensor [rows, width] as
        safetensors or torch.save wrote it, perhaps a shape and a grid.

        Raises:
            RenderError: it is no such tensor, or too large, or has another width.
        """
        try:
            tensor = SentTensor.read(base64.b64decode(fields[embeds_param(kind)], validate=True))
            self._check(tensor.shape)
            return media_of_embeds(kind, tensor.as_f32(), fields.get(SHAPE), fields.get(GRID))
        except binascii.Error as error:
            raise RenderError(f"it is not base64: {error}") from error
        except (WeightsError, ValueError) as error:
            raise RenderError(str(error)) from error

    def _check(self, shape: tuple[int, ...]) -> None:
        width = "width" if self.width is None else self.width
        fits = len(shape) == 2 and shape[0] > 0 and self.width in (None, shape[1])
        if not fits or 4 * math.prod(shape) > self.max_bytes:
            raise ValueError(
                f"embeddings have the shape {list(shape)}; this model takes [rows, {width}], of at"
                f" most {self.max_bytes} bytes in f32"
            )


def embeds_part(kind: MediaKind, rows: np.ndarray, form: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a message with these rows, float32 [rows, width], to the last bit; `form` is what
    `media_of_embeds` needs beside them."""
    data = np.ascontiguousarray(rows, "<f4").tobytes()
    entry = {"dtype": "F32", "shape": list(rows.shape), "data_offsets": [0, len(data)]}
    file = safetensors_header({"embeddings": entry}) + data
    name = embeds_param(kind)
    return {"type": name, name: {name: base64.b64encode(file).decode("ascii"), **form}}
