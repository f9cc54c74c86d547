"""One image or recording of a prompt, as files are read for a model: what its family makes an
encoder's input of.

    media = PreparedMedia("image", pixels)
    media = PreparedMedia("audio", samples)
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pagemill.inputs.media_kind import MediaKind


class PreparedMedia(NamedTuple):
    """`values`, float32, are:

    - of an image, pixels [3, height, width], normalized as its model wants them, or tiles [tiles,
      3, height, width]; or with a `grid`, patches [patches, channels] or tiles;
    - of audio, samples [samples] of one channel at the model's sampling rate, from -1 to 1; or log-
      mel frames [bins, frames] of a part of it.

    `grid` has how many patches or tiles there are in time, height and width. Of LLaVA-Next, which
    makes a choice of tiles of an image's size, it has 1 and the height and width of the image, in
    pixels before it was resized.
    """

    kind: MediaKind
    values: np.ndarray
    grid: tuple[int, int, int] | None = None
