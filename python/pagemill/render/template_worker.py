"""The process that renders chat templates, with hard limits on its time and memory.

Standard input is a socket. It carries `template_wire` messages: a `Setup`, then `RenderRequest`s,
each answered with a `RenderReply`. The process ends when the socket is closed. A message that takes
too long ends it too, by a signal that no template can catch.
"""

import functools
import socket
from collections.abc import Callable

import msgspec

from pagemill.render.chat_template import ChatTemplate, reason
from pagemill.render.child_process import (
    connect_to_parent,
    limit_memory,
    limit_time,
    receive,
    send,
)
from pagemill.render.control_text import ControlText
from pagemill.render.errors import RenderError
from pagemill.render.renderers.base import finished
from pagemill.render.template_wire import RenderReply, RenderRequest, Setup


def main() -> None:
    """Serves the socket until it is closed."""
    with connect_to_parent() as connection:
        message = receive(connection)
        if message is None:
            return
        setup = msgspec.msgpack.decode(message, type=Setup)
        limit_memory(setup.max_extra_bytes)
        worker = _Worker()
        _serve(connection, setup, lambda: worker.compile(setup))
        while (message := receive(connection)) is not None:
            _serve(connection, setup, functools.partial(worker.render, message))


def _serve(connection: socket.socket, setup: Setup, work: Callable[[], RenderReply]) -> None:
    limit_time(setup.max_cpu_s)
    payload = msgspec.msgpack.encode(_reply(work))
    limit_time(0)
    send(connection, payload)


class _Worker:
    """A model's templates."""

    def __init__(self) -> None:
        self._templates: dict[str, ChatTemplate] = {}
        self._control = ControlText(())
        self._decode = msgspec.msgpack.Decoder(RenderRequest).decode

    def compile(self, setup: Setup) -> RenderReply:
        """Compiles the templates."""
        self._control = ControlText(setup.control_tokens)
        for name, source in setup.templates.items():
            self._templates[name] = ChatTemplate(
                source, setup.variables, setup.content_format, setup.media_texts
            )
        return RenderReply()

    def render(self, message: bytes) -> RenderReply:
        """Answers a `RenderRequest`."""
        request = self._decode(message)
        for_tools = self._templates.get("tool_use") if request.tools else None
        template = for_tools or self._templates["default"]
        messages = [template.prepared(message) for message in request.messages]
        control = None if request.trust_control_tokens else self._control
        read, ignored = template.split_variables(request.variables)
        prompt = template.render(
            messages, request.tools, request.add_generation_prompt, read, control
        )
        return finished(prompt, request, messages[-1]["content"], control, ignored)


def _reply(work: Callable[[], RenderReply]) -> RenderReply:
    try:
        return work()
    except RenderError as error:
        return RenderReply(error=error.message, param=error.param)
    except Exception as error:
        # Whatever else a template does to its compiler fails it alone.
        return RenderReply(error=f"the chat template failed: {reason(error)}", param="messages")


if __name__ == "__main__":
    main()
