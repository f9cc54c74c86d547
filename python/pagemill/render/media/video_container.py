"""Video files as frames, by PyAV: only those that are wanted are decoded, and what is needed to
reach them. Demuxers take memory as a file says, so this runs in a process with limits, for
`video_process`.
"""

from __future__ import annotations

import io
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from fractions import Fraction
from typing import NamedTuple, TypeVar, cast

import av
from av.audio.codeccontext import AudioCodecContext
from av.audio.stream import AudioStream
from av.container import InputContainer
from av.packet import Packet
from av.video.codeccontext import VideoCodecContext
from av.video.frame import VideoFrame
from av.video.stream import VideoStream
from PIL import Image

from pagemill.render.errors import RenderError
from pagemill.render.media.video_bounds import PixelBudget, VideoLimits

T = TypeVar("T", VideoStream, AudioStream)
FORMATS = "MP4, QuickTime, WebM, Matroska and AVI"
# Others are not probed: some, such as playlists, name further files.
_DECODERS = ("av1", "h264", "hevc", "libdav1d", "mpeg4", "vp8", "vp9")
_SOUND_DECODERS = ("aac", "flac", "mp3", "mp3float", "opus", "pcm_s16le", "vorbis")
_EDGE_PIXELS = 2**16  # decoders make small frames larger, and others by much less than half
_SAMPLE_BYTES = 4
_BLOCK_BYTES = 2**18  # of sound at a time: a file may have packets of one sample
_REORDERED_FRAMES = 16  # more than a frame that is shown earlier may come behind a key frame


class SoundBlock(NamedTuple):
    """Samples, f32 [n, channels], `rate` a second."""

    rate: int
    channels: int
    samples: bytes


class OpenVideo:
    """A video of `num_frames`, by its header, of which there are `rate` in a second."""

    def __init__(self, container: InputContainer, limits: VideoLimits) -> None:
        """Compares what the header says with `limits`.

        Raises:
          RenderError: it exceeds one, or there is no video.
        """
        self._container = container
        self._limits = limits
        self._budget = PixelBudget()
        self._stream = stream = _video_of(container, limits)
        rate = stream.average_rate or stream.guessed_rate
        if not rate:
            raise RenderError("it does not say how many frames it has in a second")
        self.rate = float(rate)
        self.num_frames = stream.frames or round(_seconds_of(container, stream) * rate)
        if self.num_frames < 1:
            raise RenderError("it does not say how long it is")
        limits.check_length(self.num_frames, self.rate)
        limits.check_size(stream.codec_context.width, stream.codec_context.height)

    def frames(self, numbers: Sequence[int]) -> Iterator[Image.Image]:
        """The frames of these ascending numbers, upright, in RGB; fewer if the file ends early.

        Raises:
          RenderError: a frame has too many pixels, or too many have to be decoded.
        """
        unit = 1 / (self.rate * float(self._stream.time_base or 1))  # a frame, as times are counted
        decoded = self._decoded()
        frame = next(decoded, None)
        first = 0 if frame is None else _time_of(frame)
        for number in numbers:
            wanted = first + (number - 0.5) * unit
            if frame is not None and self._leaps(wanted - _REORDERED_FRAMES * unit, frame):
                decoded = self._decoded()
                frame = next(decoded, None)
            while frame is not None and _time_of(frame) < wanted:
                frame = next(decoded, None)
            if frame is None:
                return
            yield _image_of(frame)

    def sound(self) -> Iterator[SoundBlock]:
        """The first sound of a file that was opened with it, from its beginning, block by block;
        none if it has no sound.

        Raises:
          RenderError: its codec is not taken, it cannot be decoded, or is too long.
        """
        if not self._container.streams.audio:
            return
        stream = self._container.streams.audio[0]
        codec = cast("AudioCodecContext | None", stream.codec_context)
        if codec is None or codec.name not in _SOUND_DECODERS:
            raise RenderError(
                "the codec of its sound is not taken; known: AAC, FLAC, MP3, Opus, PCM of 16 bits"
                " and Vorbis"
            )
        codec.thread_count = 1
        with _errors_of_decoders():
            self._container.seek(0)
        # The same rate and channels, but not in planes, whose number PyAV gets wrong if it is 8.
        resampler = av.AudioResampler(format="flt")
        packets = self._container.demux(stream)
        form, samples, block = (0, 0), 0, bytearray()
        while (packet := _next_of(packets)) is not None:
            with _errors_of_decoders():
                frames = [each for frame in packet.decode() for each in resampler.resample(frame)]
            for frame in frames:
                own = frame.sample_rate, frame.layout.nb_channels
                if block and (own != form or len(block) >= _BLOCK_BYTES):
                    yield SoundBlock(*form, bytes(block))
                    block.clear()
                form = own
                samples += frame.samples
                self._limits.check_length(samples, frame.sample_rate)
                size = frame.samples * form[1] * _SAMPLE_BYTES  # a plane may be longer
                block += bytes(frame.planes[0])[:size]
        if block:
            yield SoundBlock(*form, bytes(block))

    def _leaps(self, wanted: float, frame: VideoFrame) -> bool:
        """Whether decoding continues from a key frame ahead of `frame`, at or before `wanted`."""
        index = self._stream.index_entries
        at = index.search_timestamp(int(wanted)) if len(index) else -1
        if at < 0:
            return False
        if index[at].timestamp <= _time_of(frame):
            return False
        with _errors_of_decoders():
            self._container.seek(int(wanted), stream=self._stream)
        return True

    def _decoded(self) -> Iterator[VideoFrame]:
        packets = self._container.demux(self._stream)
        while (packet := _next_of(packets)) is not None:
            if packet.size:  # also if it has no frame that is shown
                codec = self._stream.codec_context
                self._budget.spend(codec.width, codec.height)
            with _errors_of_decoders():
                frames = packet.decode()
            for frame in frames:
                self._limits.check_size(frame.width, frame.height)
                yield frame


@contextmanager
def open_video(data: bytes, limits: VideoLimits, *, sound: bool = False) -> Generator[OpenVideo]:
    """The video in a file, perhaps with its sound.

    Raises:
      RenderError: it is no file of FORMATS, is damaged, or exceeds a limit.
    """
    kind = _format_of(data)
    if kind is None:
        raise _undecodable()
    options = {
        "codec_whitelist": ",".join((*_DECODERS, *(_SOUND_DECODERS if sound else ()))),
        "protocol_whitelist": "none",
    }
    with _errors_of_decoders():
        container = av.open(
            io.BytesIO(data), "r", format=kind, options=options, metadata_errors="ignore"
        )
    with container:
        yield OpenVideo(container, limits)


@contextmanager
def _errors_of_decoders() -> Generator[None]:
    """Around calls of PyAV, which raises what it likes.

    Raises:
      RenderError: anything was raised but MemoryError.
    """
    try:
        yield
    except MemoryError:
        raise
    except Exception:
        raise _undecodable() from None


def _next_of(packets: Iterator[Packet[T]]) -> Packet[T] | None:
    with _errors_of_decoders():
        return next(packets, None)


def _format_of(data: bytes) -> str | None:
    """The demuxer of the container that `data` begins as."""
    if data[4:8] == b"ftyp":
        return "mov"
    if data.startswith(b"\x1aE\xdf\xa3"):
        return "matroska"
    return "avi" if data.startswith(b"RIFF") and data[8:12] == b"AVI " else None


def _video_of(container: InputContainer, limits: VideoLimits) -> VideoStream:
    """The first video, whose decoder refuses frames that are too large."""
    if not container.streams.video:
        raise RenderError("it has no video")
    stream = container.streams.video[0]
    codec = cast("VideoCodecContext | None", stream.codec_context)
    if codec is None or codec.name not in _DECODERS:
        raise RenderError("its codec is not taken; known: AV1, H.264, H.265, MPEG-4, VP8 and VP9")
    codec.options = {"max_pixels": str(2 * limits.max_pixels + _EDGE_PIXELS)}
    codec.thread_count = 1  # requests are decoded beside each other
    return stream


def _seconds_of(container: InputContainer, stream: VideoStream) -> Fraction:
    if stream.duration is not None and stream.time_base is not None:
        return stream.duration * stream.time_base
    return Fraction(container.duration or 0, av.time_base)


def _time_of(frame: VideoFrame) -> int:
    if frame.pts is None:
        raise RenderError("its frames do not say when they are shown")
    return frame.pts


def _image_of(frame: VideoFrame) -> Image.Image:
    with _errors_of_decoders():
        image = cast("Image.Image", frame.to_image())
    return image.rotate(frame.rotation, expand=True) if frame.rotation else image


def _undecodable() -> RenderError:
    return RenderError(
        f"it cannot be decoded; files of type {FORMATS} are taken, and JPEG files as frames"
    )
