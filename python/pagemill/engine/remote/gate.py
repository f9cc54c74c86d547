"""Where engines of other machines join a server: a TCP port, and a Unix socket for each engine.

    gate = Gate(place, {2: path_2, 3: path_3}, version, options)
    gate.open()                         # in the event loop
    gate.expect(model)                  # what engines of this machine run
    ...
    gate.close()

    engine 2 --TCP, handshake--> gate --descriptor of the connection--> API process

An engine keeps one connection waiting here. A client that connects to the engine's Unix socket gets
that connection itself, by its descriptor, so nothing is relayed; the engine, which receives a byte
then, makes the next one. A client that finds none waits for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from pagemill.engine.meeting_place import MeetingPlace
from pagemill.engine.remote.connection_options import set_connection_options
from pagemill.engine.remote.handshake import HandshakeError, challenge
from pagemill.engine.remote.join_messages import JOIN_PROTOCOL, Answer, Claim, Verdict
from pagemill.engine.unix_peer import is_this_user

_LOGGER = logging.getLogger("pagemill.engine")
_MAX_GUESTS = 64  # connections whose handshake is not over
_HANDSHAKE_S = 10.0
_MAX_CLIENTS = 256  # that wait for one engine
_RETURN_S = 5.0  # for an engine to make its next connection
_BUSY_S = 0.1  # until connections are accepted again
BEGIN = b"\n"
"""What a connection has before the first message of a client."""


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A connection of an engine that no client has yet."""

    connection: socket.socket
    claim: Claim
    host: str


class Gate:
    """Lets engines join until it is closed. Lives on one event loop of asyncio."""

    def __init__(
        self,
        place: MeetingPlace,
        paths: Mapping[int, str],
        version: str,
        options: str,
        has_own: bool = False,
        on_return: Callable[[], None] = lambda: None,
    ) -> None:
        """`paths` are those of the Unix sockets, in a folder of this user, by the engines' numbers;
        `version` and `options` are what a `Claim` must have. If this machine `has_own` engines,
        others wait for `expect`; else the first that joins decides on the model. `on_return` is
        called when an engine joins that has been started again."""
        self._place = place
        self._paths = paths
        self._version = version
        self._options = options
        self._has_own = has_own
        self._on_return = on_return
        self._model: str | None = None
        self._waiting: dict[int, _Waiting] = {}
        self._passed: dict[int, tuple[_Waiting, float]] = {}  # the last, and when others may join
        self._clients: dict[int, list[socket.socket]] = {engine: [] for engine in paths}
        self._runs: dict[int, bytes] = {}  # the last of each engine
        self._refused: set[str] = set()  # reasons since an engine joined last
        self._guests: dict[asyncio.Task[None], None] = {}  # oldest first
        self._tasks: list[asyncio.Task[None]] = []
        self._listeners: list[socket.socket] = []

    def open(self) -> None:
        """Listens.

        Raises:
            OSError: the address cannot be listened at.
        """
        place = self._place
        family = socket.AF_INET6 if ":" in place.host else socket.AF_INET
        listener = socket.create_server((place.host, place.port), family=family)
        self._serve(listener, self._begin_greeting)
        for engine, path in self._paths.items():
            listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self._serve(listener, partial(self._add_client, engine))
            listener.bind(path)
            os.chmod(path, 0o600)
            listener.listen()
        _LOGGER.info("engines %s may join at %s", ", ".join(map(str, self._paths)), place.address)

    def expect(self, model: str) -> None:
        """From now on engines join that run what has this digest, and no others."""
        self._model = model

    def close(self) -> None:
        """Ends all connections that no client has, and those of clients. Idempotent."""
        for task in (*self._tasks, *self._guests):
            task.cancel()
        for listener in self._listeners:
            listener.close()
        for engine, clients in self._clients.items():
            self._drop(engine)
            for client in list(clients):
                self._drop_client(engine, client)

    def _serve(self, listener: socket.socket, take: Callable[[socket.socket], None]) -> None:
        listener.setblocking(False)
        self._listeners.append(listener)
        self._tasks.append(asyncio.create_task(_accept(listener, take)))

    def _add_client(self, engine: int, client: socket.socket) -> None:
        """Gives it the connection of `engine` that waits, or the next one."""
        clients = self._clients[engine]
        if not is_this_user(client) or len(clients) >= _MAX_CLIENTS:
            client.close()
            return
        clients.append(client)
        drop = partial(self._drop_client, engine, client)  # it has ended: clients say nothing
        asyncio.get_running_loop().add_reader(client, drop)
        self._pass(engine)

    def _drop_client(self, engine: int, client: socket.socket) -> None:
        self._clients[engine].remove(client)
        asyncio.get_running_loop().remove_reader(client)
        client.close()

    def _pass(self, engine: int) -> None:
        """Gives the waiting connection of `engine` to the first client, if there are both."""
        while engine in self._waiting and self._clients[engine]:
            waiting, client = self._waiting[engine], self._clients[engine][0]
            with contextlib.suppress(OSError):  # the client has ended
                socket.send_fds(client, [BEGIN], [waiting.connection.fileno()])
                with contextlib.suppress(OSError):  # the engine has, which the client will see
                    waiting.connection.send(BEGIN)
                end = asyncio.get_running_loop().time() + _RETURN_S
                self._passed[engine] = waiting, end
                self._drop(engine)
            self._drop_client(engine, client)

    def _begin_greeting(self, connection: socket.socket) -> None:
        if len(self._guests) >= _MAX_GUESTS:
            oldest = next(iter(self._guests))  # makes room
            del self._guests[oldest]
            oldest.cancel()
        task = asyncio.create_task(self._greet(connection))
        self._guests[task] = None
        task.add_done_callback(lambda task: self._guests.pop(task, None))

    async def _greet(self, connection: socket.socket) -> None:
        """Ends with the connection closed, or waiting for a client."""
        host = ""
        try:
            host = connection.getpeername()[0]
            set_connection_options(connection)
            async with asyncio.timeout(_HANDSHAKE_S):
                guest = await challenge(connection, JOIN_PROTOCOL, self._place.secret)
                claim = Claim.decode(guest.claim)
                answer = self._judge(claim)
                await guest.welcome(answer.encode())
            if answer.verdict is not Verdict.JOINED:
                raise HandshakeError(answer.reason)
        except HandshakeError as error:
            self._log_refusal(host, str(error))
            connection.close()
        except (OSError, TimeoutError, asyncio.CancelledError):
            connection.close()
        else:
            self._admit(_Waiting(connection, claim, host))

    def _judge(self, claim: Claim) -> Answer:
        name = f"engine {claim.engine}"
        if claim.version != self._version:
            return Answer(
                Verdict.REFUSED,
                f"{name} has version {claim.version} of Pagemill and the server has"
                f" {self._version}: install one version on all machines",
            )
        if claim.engine not in self._paths:
            return Answer(
                Verdict.REFUSED,
                f"the server expects no {name} from another machine: see"
                " --data-parallel-start-rank, --data-parallel-size and --data-parallel-size-local",
            )
        if claim.options != self._options:
            return Answer(
                Verdict.REFUSED,
                f"{name} was started with other options than the server: give all machines the"
                " same, also --served-model-name, except those of the machine and of HTTP",
            )
        if self._model is None:
            if self._has_own:
                return Answer(Verdict.LATER, "the server's own engines are still being loaded")
            self._model = claim.model
        if claim.model != self._model:
            return Answer(
                Verdict.REFUSED,
                f"{name} has another model, or other files of it, or another key in"
                " --watermark-key-file, than the server: give all machines the same files",
            )
        owner = self._owner(claim.engine)
        if owner is not None and owner.claim.run != claim.run:
            return Answer(
                Verdict.LATER,
                f"{name} has joined before, from {owner.host}: do two machines have it?",
            )
        return Answer(Verdict.JOINED)

    def _owner(self, engine: int) -> _Waiting | None:
        """Whose number it is: the process that waits, or will do so again at once."""
        if engine in self._waiting:
            return self._waiting[engine]
        passed, end = self._passed.get(engine, (None, 0.0))
        return passed if asyncio.get_running_loop().time() < end else None

    def _admit(self, waiting: _Waiting) -> None:
        engine, run = waiting.claim.engine, waiting.claim.run
        self._drop(engine)  # of the same run
        self._waiting[engine] = waiting
        asyncio.get_running_loop().add_reader(waiting.connection, lambda: self._drop(engine))
        before = self._runs.get(engine)
        if before != run:
            self._runs[engine] = run
            self._refused.clear()
            _LOGGER.info("engine %d has joined from %s", engine, waiting.host)
            if before is not None:
                self._on_return()
        self._pass(engine)

    def _drop(self, engine: int) -> None:
        """Closes the waiting connection here: it has ended, says something before its turn, or a
        client has it."""
        waiting = self._waiting.pop(engine, None)
        if waiting is not None:
            asyncio.get_running_loop().remove_reader(waiting.connection)
            waiting.connection.close()

    def _log_refusal(self, host: str, reason: str) -> None:
        if reason not in self._refused:  # engines try again each second, strangers at will
            self._refused.add(reason)
            _LOGGER.warning("an engine of %s may not join: %s", host, reason)


async def _accept(listener: socket.socket, take: Callable[[socket.socket], None]) -> None:
    """Calls `take` with each connection."""
    loop = asyncio.get_running_loop()
    while True:
        try:
            connection, _ = await loop.sock_accept(listener)
        except OSError:  # there are no descriptors
            await asyncio.sleep(_BUSY_S)
            continue
        take(connection)
        await asyncio.sleep(0)  # `sock_accept` returns at once while there is one
