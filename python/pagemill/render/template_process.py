"""Processes that render chat templates: started when needed, ended when they take too long.

processes = TemplateProcesses()       # starts one
processes.compile(setup)              # waits for it; raises what is wrong with the templates
reply = processes.render(request)     # blocks; call it in a thread
processes.close()
"""

import threading

import msgspec

from pagemill.render.child_process import TIME_IS_UP, ChildProcess
from pagemill.render.errors import RenderError
from pagemill.render.template_wire import MAX_TEMPLATE_CHARS, RenderReply, RenderRequest, Setup

MAX_PROCESSES = 4
MAX_REQUEST_BYTES = 2**25
_MAX_SECONDS = 10.0  # of waiting, if the machine is too busy to give a process its time
_PATIENCE_S = 0.05  # a busy process is waited for this long before a further one is started


class TemplateProcesses:
    """Up to MAX_PROCESSES processes with the same templates. Thread-safe.

    One idle process is kept. A request whose process ends fails alone; the next one gets another.
    Processes end with this object at the latest.
    """

    def __init__(self) -> None:
        """Starts a process, and does not wait until it runs.

        Raises:
          RenderError: it cannot be started.
        """
        self._setup = b""
        self._idle: list[_Process] = [_new_process()]
        self._count = 1
        self._waiting = 0
        self._changed = threading.Condition()

    def compile(self, setup: Setup) -> None:
        """Compiles the templates that `render` is to use; called once, before it.

        Raises:
          RenderError: a template cannot be compiled, or not within the limits.
        """
        for source in setup.templates.values():
            if len(source) > MAX_TEMPLATE_CHARS:
                raise RenderError(
                    f"the chat template has {len(source)} characters; at most"
                    f" {MAX_TEMPLATE_CHARS} are taken"
                )
        try:
            self._setup = msgspec.msgpack.encode(setup)
        except UnicodeEncodeError:
            raise RenderError(
                "the chat template or a special token holds half a surrogate pair, which is not"
                " Unicode text"
            ) from None
        _checked(self._idle[0].exchange(self._setup))

    def render(self, request: RenderRequest) -> RenderReply:
        """Returns the reply to `request`, which holds no error.

        Raises:
          RenderError: the template refuses the messages, fails, or takes too much time or memory.
        """
        payload = _encoded(request)
        process = self._acquire()
        try:
            reply = process.exchange(payload)
        except BaseException:
            self._forget(process)
            raise
        self._release(process)
        return _checked(reply)

    def close(self) -> None:
        """Ends idle processes. Others end after their request; a further request starts one."""
        with self._changed:
            idle, self._idle = self._idle, []
            self._count -= len(idle)
        for process in idle:
            process.close()

    def _acquire(self) -> "_Process":
        patient = True
        with self._changed:
            while True:
                if self._idle:
                    process = self._idle.pop()
                    if process.alive():
                        return process
                    process.close()
                    self._count -= 1
                elif self._count < MAX_PROCESSES and not (self._count and patient):
                    self._count += 1
                    break
                else:
                    self._waiting += 1
                    full = self._count >= MAX_PROCESSES
                    patient = self._changed.wait(None if full else _PATIENCE_S)
                    self._waiting -= 1
        return self._started()

    def _started(self) -> "_Process":
        process: _Process | None = None
        try:
            process = _new_process()
            _checked(process.exchange(self._setup))
        except BaseException:
            self._forget(process)
            raise
        return process

    def _release(self, process: "_Process") -> None:
        with self._changed:
            keep = len(self._idle) <= self._waiting
            if keep:
                self._idle.append(process)
                self._changed.notify()
        if not keep:
            self._forget(process)

    def _forget(self, process: "_Process | None") -> None:
        with self._changed:
            self._count -= 1
            self._changed.notify()
        if process is not None:
            process.close()


class _Process(ChildProcess):
    """A worker."""

    def __init__(self) -> None:
        super().__init__("pagemill.render.template_worker", _MAX_SECONDS)

    def exchange(self, payload: bytes) -> RenderReply:
        """Sends a message and returns the reply.

        Raises:
          RenderError: the process ended, or did not answer in time.
        """
        try:
            self.send(payload)
            answer = self.receive()
        except TimeoutError:
            raise RenderError("the chat template took too long", "messages") from None
        except ConnectionError:
            answer = None
        if answer is None:
            raise RenderError(self._how_it_ended(), "messages")
        return msgspec.msgpack.decode(answer, type=RenderReply)

    def _how_it_ended(self) -> str:
        status = self.status()
        if status is None:
            return "the process of the chat template hangs"
        if status == -TIME_IS_UP:
            return "the chat template took too much processor time"
        how = f"signal {-status}" if status < 0 else f"status {status}"
        return f"the chat template ended its process with {how}"


def _new_process() -> _Process:
    try:
        return _Process()
    except OSError as error:
        raise RenderError(f"no process for chat templates can be started: {error}") from None


def _checked(reply: RenderReply) -> RenderReply:
    if reply.error is not None:
        raise RenderError(reply.error, reply.param)
    return reply


def _encoded(request: RenderRequest) -> bytes:
    try:
        payload = msgspec.msgpack.encode(request)
    except UnicodeEncodeError:
        raise RenderError(
            "the messages hold half a surrogate pair, which is not Unicode text", "messages"
        ) from None
    except (TypeError, ValueError, OverflowError) as error:
        raise RenderError(
            f"the messages cannot be given to a chat template: {error}", "messages"
        ) from None
    if len(payload) > MAX_REQUEST_BYTES:
        raise RenderError(
            f"the messages have {len(payload)} bytes; a chat template is given at most"
            f" {MAX_REQUEST_BYTES}",
            "messages",
        )
    return payload
