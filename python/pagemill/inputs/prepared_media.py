"""One image, recording or video of a prompt, as files are read for a model: what its family makes
an encoder's input of.

    media = PreparedMedia("image", pixels)
    media = PreparedMedia("audio", samples)
    media = PreparedMedia("video", patches, (2, 4, 6), FrameTimes((0.0, 0.5, 1.0, 1.5), rate=2.0))
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pagemill.inputs.media_kind import MediaKind


class FrameTimes(NamedTuple):
    """When the frames of a video are: `seconds` from its beginning, of each, and the `rate`, how
    many there are in a second on average."""

    seconds: tuple[float, ...]
    rate: float


class PreparedMedia(NamedTuple):
    """`values`, float32, are:

    - of an image, pixels [3, height, width], normalized as its model wants them, or tiles [tiles,
      3, height, width]; or with a `grid`, patches [patches, channels] or tiles. Pixels of several
      sizes are one array after the other: DeepSeek-OCR 2's tiles, of which the `grid` has the
      numbers, and then the whole image; of DeepSeek-VL with two towers a small and a large image;
    - of audio, samples [samples] of one channel at the model's sampling rate, from -1 to 1; or log-
      mel frames [bins, frames] of a part of it;
    - of a video, patches [patches, channels], each of two frames or more, with a `grid` and the
      `times` of its frames; a frame that only fills up the last patches counts among them. Of
      models whose images have one size, frames [frames, 3, height, width], and the `grid` (frames,
      1, 1). Its `sound`, if it is heard, is samples as those of audio.

    `grid` has how many patches or tiles there are in time, height and width. Of LLaVA-Next and
    LLaVA-OneVision, which choose tiles by an image's size, it has 1 and the height and width of the
    image, in pixels before it was resized. LFM2-VL's tiles, [tiles, patches, channels], of which
    the last one begins with the patches of the whole image and goes on with zeros, have the number
    of rows of tiles, and the height and width of the whole image in patches. So have slices of
    MiniCPM-V and quarters of Idefics2, [blocks, height, width, channels] in patches, behind which
    the whole image's patches fill some more blocks.

    With `embeddings`, float32 [rows, width], nothing is encoded: they are what an encoder has made
    of such `values`, which are zeros; or there are none, if the rows are all there is.
    """

    kind: MediaKind
    values: np.ndarray
    grid: tuple[int, int, int] | None = None
    times: FrameTimes | None = None
    sound: np.ndarray | None = None
    embeddings: np.ndarray | None = None

    @property
    def num_bytes(self) -> int:
        """Of its arrays."""
        if self.embeddings is not None:
            return self.embeddings.nbytes
        return self.values.nbytes + (0 if self.sound is None else self.sound.nbytes)
