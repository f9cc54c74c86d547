"""Video files as frames, each file decoded in a process of its own, with limits on its time and
memory: what a small file makes of either is for its decoder to find out.

    with open_video(data, limits) as video:
        first, last = video.frames([0, video.num_frames - 1])
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager

import msgspec
import numpy as np
from PIL import Image

from pagemill.render.child_process import TIME_IS_UP, ChildProcess
from pagemill.render.errors import RenderError
from pagemill.render.media.video_bounds import VideoLimits
from pagemill.render.media.video_wire import (
    VideoFrame,
    VideoHeader,
    VideoRefusal,
    VideoReply,
    VideoSetup,
    VideoSound,
)
from pagemill.render.stop import Stop

_MAX_CPU_S = 60.0
_MAX_SILENCE_S = 4 * _MAX_CPU_S  # if the machine is too busy to give a process its time
# Measured: up to 56 bytes a pixel, for H.265 with 10 bits.
_MAX_BYTES = 2**28
_MAX_BYTES_A_PIXEL = 64


class OpenVideo:
    """A video of `num_frames`, by its header, of which there are `rate` in a second."""

    def __init__(self, child: ChildProcess, header: VideoHeader) -> None:
        self._child = child
        self._reply: VideoReply = header
        self.num_frames = header.num_frames
        self.rate = header.rate

    def frames(self, numbers: Sequence[int]) -> Iterator[Image.Image]:
        """The frames of these ascending numbers, upright, in RGB; fewer if the file ends early.
        Called once.

        Raises:
          RenderError: they cannot be decoded, or not within the limits.
        """
        self._reply = _exchange(self._child, msgspec.msgpack.encode(numbers))
        while isinstance(self._reply, VideoFrame):
            frame = self._reply
            yield Image.frombytes("RGB", (frame.width, frame.height), frame.rgb)
            self._reply = _exchange(self._child)

    def sound(self) -> Iterator[tuple[int, np.ndarray]]:
        """The sound of a video that was opened with it, behind its frames: how many samples there
        are in a second, and some of them, f32 [channels, n], one block after the other; none if it
        has no sound.

        Raises:
          RenderError: it cannot be decoded, or not within the limits.
        """
        while isinstance(self._reply, VideoFrame):
            self._reply = _exchange(self._child)
        while isinstance(self._reply, VideoSound):
            block = self._reply
            samples = np.frombuffer(block.samples, np.float32)
            yield block.rate, samples.reshape(-1, block.channels).T
            self._reply = _exchange(self._child)


@contextmanager
def open_video(
    data: bytes, limits: VideoLimits, *, sound: bool = False, stop: Stop | None = None
) -> Generator[OpenVideo]:
    """The video in a file, perhaps with its sound. `stop` ends its process, after which what is
    raised says nothing about the file.

    Raises:
      RenderError: it is no video, is damaged, or exceeds a limit.
    """
    max_extra_bytes = _MAX_BYTES + _MAX_BYTES_A_PIXEL * limits.max_pixels
    setup = msgspec.msgpack.encode(VideoSetup(limits, _MAX_CPU_S, max_extra_bytes, sound))
    child = ChildProcess("pagemill.render.media.video_worker", _MAX_SILENCE_S)
    try:
        with (stop or Stop()).ends(child):
            header = _exchange(child, setup, data)
            assert isinstance(header, VideoHeader)
            yield OpenVideo(child, header)
    finally:
        child.close()


def _exchange(child: ChildProcess, *messages: bytes) -> VideoReply:
    """Sends messages, and returns the next reply.

    Raises:
      RenderError: it is a refusal, or the file ended the process.
    """
    try:
        for message in messages:
            child.send(message)
        answer = child.receive()
    except TimeoutError:
        raise RenderError("it takes too long to decode; send a shorter or smaller one") from None
    except ConnectionError:
        answer = None
    if answer is None:
        raise _how_it_ended(child)
    reply = msgspec.msgpack.decode(answer, type=VideoReply)
    if isinstance(reply, VideoRefusal):
        raise RenderError(reply.error)
    return reply


def _how_it_ended(child: ChildProcess) -> Exception:
    status = child.status()
    if status == -TIME_IS_UP:
        return RenderError(
            f"it takes more than {_MAX_CPU_S:g} s of processor time to decode; send a shorter or"
            " smaller one"
        )
    if status is not None and status < 0:
        return RenderError(f"it cannot be decoded: its decoder ended with signal {-status}")
    return RuntimeError(f"the process that decodes videos failed with status {status}")
