"""Processes with limits on their time and memory, each with a socket to the one that started it.

    child = ChildProcess("pagemill.render.template_worker", max_silence_s=10)
    child.send(b"...")
    answer = child.receive()           # None: it ended, and child.status() says how
    child.close()

The module's `main` gets its end from `connect_to_parent`, and sets its own limits. A message is 8
bytes of length, little endian, and that many bytes.
"""

import json
import resource
import signal
import socket
import subprocess
import sys
import weakref

TIME_IS_UP = signal.SIGPROF
"""The signal that ends a process whose processor time is used up."""

_LENGTH_BYTES = 8
_CHUNK_BYTES = 2**20
# The child imports what this process would, wherever it found that.
_BOOT = (
    "import importlib, json, signal, sys\n"
    # A terminal or a service manager sends them to all; the parent decides.
    "for name in ('SIGINT', 'SIGTERM', 'SIGHUP'):\n"
    "    signal.signal(signal.Signals[name], signal.SIG_IGN)\n"
    "sys.path[:] = json.loads(sys.argv[1])\n"
    "importlib.import_module(sys.argv[2]).main()\n"
)


class ChildProcess:
    """A process that runs `main` of a module. It ends with this object at the latest."""

    def __init__(self, module: str, max_silence_s: float) -> None:
        """Starts it, and does not wait until it runs. `max_silence_s`: of waiting for it.

        Raises:
          OSError: it cannot be started.
        """
        self._socket, theirs = socket.socketpair()
        with theirs:
            command = [sys.executable, "-c", _BOOT, json.dumps(sys.path), module]
            self._process = subprocess.Popen(
                command, stdin=theirs.fileno(), stdout=subprocess.DEVNULL
            )
        self._socket.settimeout(max_silence_s)
        self._max_silence_s = max_silence_s
        self.close = weakref.finalize(self, _end, self._socket, self._process)

    @property
    def pid(self) -> int:
        """Its number."""
        return self._process.pid

    def alive(self) -> bool:
        """True if it has not ended."""
        return self._process.poll() is None

    def send(self, payload: bytes) -> None:
        """Sends it a message.

        Raises:
          TimeoutError: it does not read.
          ConnectionError: it ended.
        """
        send(self._socket, payload)

    def receive(self) -> bytes | None:
        """Its next message; None if it has ended.

        Raises:
          TimeoutError: there is none.
          ConnectionError: it ended, and had not read all.
        """
        return receive(self._socket)

    def kill(self) -> None:
        """Ends it at once, from any thread; it then has ended for `receive`."""
        self._process.kill()

    def status(self) -> int | None:
        """How it ended: its exit status, or a signal's number, negative; None: it hangs."""
        try:
            return self._process.wait(self._max_silence_s)
        except subprocess.TimeoutExpired:
            return None


def connect_to_parent() -> socket.socket:
    """In the child: the socket to the process that started it."""
    signal.signal(TIME_IS_UP, signal.SIG_DFL)  # whatever the parent ignores or blocks
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [TIME_IS_UP])
    return socket.socket(fileno=0)


def limit_time(seconds: float) -> None:
    """Ends this process when it has used so much processor time from now on; 0: never."""
    signal.setitimer(signal.ITIMER_PROF, seconds)


def limit_memory(extra_bytes: int) -> None:
    """Refuses this process memory beyond what it has now and `extra_bytes`."""
    with open("/proc/self/statm", encoding="ascii") as file:
        pages = int(file.read().split()[0])
    limit = pages * resource.getpagesize() + extra_bytes
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    limit = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def send(connection: socket.socket, payload: bytes) -> None:
    """Sends one message."""
    connection.sendall(len(payload).to_bytes(_LENGTH_BYTES, "little") + payload)


def receive(connection: socket.socket) -> bytes | None:
    """Returns the next message; None if the peer has closed the connection."""
    head = _receive_exactly(connection, _LENGTH_BYTES)
    if head is None:
        return None
    return _receive_exactly(connection, int.from_bytes(head, "little"))


def _receive_exactly(connection: socket.socket, size: int) -> bytes | None:
    parts: list[bytes] = []
    while size > 0:
        part = connection.recv(min(size, _CHUNK_BYTES))
        if not part:
            return None
        parts.append(part)
        size -= len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _end(connection: socket.socket, process: subprocess.Popen[bytes]) -> None:
    process.kill()
    connection.close()
    process.wait()
