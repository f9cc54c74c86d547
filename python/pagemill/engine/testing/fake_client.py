"""A client of the fake engine, and the outputs that it has not read."""

from __future__ import annotations

import contextlib
import os
from dataclasses import replace
from typing import TYPE_CHECKING

from pagemill.engine.testing.fake_outputs import FakeOutput, encode_outputs
from pagemill.engine.testing.fake_types import FakeInputChunk, FakeRequest

if TYPE_CHECKING:
    from pagemill.engine.testing.fake_engine import FakeEngine

CLIENT_SHIFT = 48
_OWN_ID = (1 << CLIENT_SHIFT) - 1


class Outbox:
    """The unread outputs of one client; guarded by the engine's lock."""

    def __init__(self) -> None:
        self.outputs: dict[int, FakeOutput] = {}
        self.notified = False
        self.read_fd, self._write_fd = os.pipe()
        os.set_blocking(self.read_fd, False)

    def push(self, output: FakeOutput, due: bool) -> None:
        """Merges it with what waits, like the native engine, and wakes the reader if `due`."""
        earlier = self.outputs.get(output.request_id)
        if earlier is not None:
            output.new_token_ids = earlier.new_token_ids + output.new_token_ids
            if earlier.logprobs is not None:
                output.logprobs = earlier.logprobs + (output.logprobs or [])
            output.prompt_logprobs = earlier.prompt_logprobs or output.prompt_logprobs
        self.outputs[output.request_id] = output
        if (due or output.finish_reason) and not self.notified:
            self.notified = True  # one byte at most waits, so that the pipe never fills
            os.write(self._write_fd, b"x")

    def take(self) -> list[FakeOutput]:
        """All that waits."""
        with contextlib.suppress(BlockingIOError):
            os.read(self.read_fd, 4096)
        taken = list(self.outputs.values())
        self.outputs.clear()
        self.notified = False
        return taken

    def close(self) -> None:
        """Frees the descriptors."""
        os.close(self.read_fd)
        os.close(self._write_fd)


class FakeClient:
    """The methods of the native EngineClient; ids carry the client's number, as there."""

    def __init__(self, engine: FakeEngine, number: int) -> None:
        self._engine = engine
        self._number = number
        self._closed = False

    def submit(self, request: FakeRequest) -> None:
        """Raises FakeStatusError for a refusal."""
        self._engine.accept(self._id(request.id), request)

    def check_room(self) -> None:
        """Raises the FakeStatusError of an engine that is full or drains."""
        self._engine.check_room()

    def abort(self, request_id: int) -> None:
        """Unknown ids are ignored."""
        self._engine.abort(self._id(request_id))

    def release(self, request_id: int) -> None:
        """Lets a held request start."""
        self._engine.release(self._id(request_id))

    def extend(self, request_id: int, chunk: FakeInputChunk) -> None:
        """Appends input."""
        self._engine.extend(self._id(request_id), chunk)

    def poll(self) -> list[FakeOutput]:
        """All waiting outputs."""
        outputs = self._engine.take(self._number)
        return [replace(o, request_id=o.request_id & _OWN_ID) for o in outputs]

    def poll_wire(self) -> bytes:
        """For `FAKE_CODEC`."""
        return encode_outputs(self.poll())

    def output_fd(self) -> int:
        """Readable while outputs wait."""
        return self._engine.output_fd(self._number)

    def close(self) -> None:
        """Aborts the client's requests."""
        if not self._closed:
            self._closed = True
            self._engine.close_client(self._number)

    def _id(self, own: int) -> int:
        return self._number << CLIENT_SHIFT | own
