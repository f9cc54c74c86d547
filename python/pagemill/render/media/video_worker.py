"""The process that decodes one video, with hard limits on its time and memory; see `video_wire`."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import msgspec

from pagemill.render.child_process import (
    connect_to_parent,
    limit_memory,
    limit_time,
    receive,
    send,
)
from pagemill.render.errors import RenderError
from pagemill.render.media.video_container import open_video
from pagemill.render.media.video_wire import (
    VideoEnd,
    VideoFrame,
    VideoHeader,
    VideoRefusal,
    VideoReply,
    VideoSetup,
    VideoSound,
)


def main() -> None:
    """Answers what the socket carries, and ends."""
    with connect_to_parent() as connection:
        message, data = receive(connection), receive(connection)
        if message is None or data is None:
            return
        setup = msgspec.msgpack.decode(message, type=VideoSetup)
        limit_memory(setup.max_extra_bytes)
        limit_time(setup.max_cpu_s)
        try:
            for reply in _replies(connection, setup, data):
                send(connection, msgspec.msgpack.encode(reply))
        except RenderError as error:
            send(connection, msgspec.msgpack.encode(VideoRefusal(error.message)))
        except MemoryError:
            reason = (
                f"it takes more than {setup.max_extra_bytes} bytes of memory to decode; send a"
                " shorter or smaller one"
            )
            send(connection, msgspec.msgpack.encode(VideoRefusal(reason)))


def _replies(connection: socket.socket, setup: VideoSetup, data: bytes) -> Iterator[VideoReply]:
    with open_video(data, setup.limits, sound=setup.sound) as video:
        yield VideoHeader(video.num_frames, video.rate)
        message = receive(connection)
        if message is None:
            return
        for image in video.frames(msgspec.msgpack.decode(message, type=list[int])):
            yield VideoFrame(image.width, image.height, image.tobytes())
        if setup.sound:
            for block in video.sound():
                yield VideoSound(*block)
        yield VideoEnd()
