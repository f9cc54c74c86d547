"""The sound of a video between its frames: chunk by chunk of equal length, first the frames that
begin in it and then the sound in it. Both have positions in time that begin with the video.

Source: `get_rope_index` of Qwen2_5OmniThinkerForConditionalGeneration in `transformers`, and
`replace_video_with_audio_token` of its processor. A pair of frames is in the chunk of its time;
there, a pair that is more than a chunk behind the one before it is divided.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

from pagemill.inputs.rendered_prompt import GridPositions, MediaFeatures
from pagemill.models.base import SoundItem

_TIME = 0  # the dimension of grid positions
_MOST_POSITIONS = 512  # of an item for each of its tokens (cc/step/media_item.h)


class _Placed(NamedTuple):
    """An item, and when it is, in positions from the beginning of its video."""

    item: MediaFeatures
    start: int
    is_sound: bool


def in_chunks(
    frames: Sequence[MediaFeatures],
    times: Sequence[int],
    sound: Sequence[MediaFeatures],
    chunk: int,
) -> list[MediaFeatures | SoundItem]:
    """The items of both in the order of their tokens. What follows the last has a position above
    all of theirs.

    Args:
        frames: what patches span in time, at the ascending `times`.
        times: positions in time.
        sound: items one after the other, which have a position for each token and do not go beyond
            a multiple of `chunk`.
        chunk: the positions of a chunk.

    Raises:
        ValueError: an item has too few tokens to be where it is, such as a short end of sound that
            is long before the last frames.
    """
    starts = list(accumulate((item.tokens for item in sound), initial=0))
    placed = [_Placed(*each, False) for each in zip(frames, times, strict=True)]
    placed += [_Placed(*each, True) for each in zip(sound, starts, strict=False)]
    placed.sort(key=lambda each: (each.start // chunk, each.is_sound))
    last_frame = max(at for at, each in enumerate(placed) if not each.is_sound)
    end = max(starts[-1], *(_next(each) for each in placed if not each.is_sound))
    moved: list[MediaFeatures | SoundItem] = []
    base = 0  # frames count rows and columns from here, so it stays until the last one
    for at, each in enumerate(placed):
        behind = base
        if at >= last_frame:
            behind = placed[at + 1].start if at + 1 < len(placed) else end
        item = _moved(each, each.start - base, behind - base)
        moved.append(SoundItem(item) if each.is_sound else item)
        base = behind
    return moved


def _next(frames: _Placed) -> int:
    """The first position in time, row and column that is behind these frames."""
    assert frames.item.positions is not None
    return max(frames.item.positions.next, frames.start + 1)


def _moved(each: _Placed, start: int, behind: int) -> MediaFeatures:
    """The item at `start`; the one behind it counts from `behind`."""
    item = each.item
    assert item.positions is not None
    tokens = item.positions.tokens.copy()
    if each.is_sound:
        tokens += start
    else:
        tokens[:, _TIME] += start
    last, most = int(tokens.max()), _MOST_POSITIONS * item.tokens - 1
    if last > most:
        whose = "its sound has" if each.is_sound else "it has"
        raise ValueError(
            f"{whose} a part of {item.tokens} tokens at position {last} in time, but one of so few"
            f" may be at {most} at most: give frames alone, a shorter video, or sound that silence"
            " fills up to the end of its frames"
        )
    positions = GridPositions(item.positions.rows, tokens, behind)
    return MediaFeatures(item.rows, item.tokens, positions, placement=item.placement)
