"""How an engine joins a server on another machine, again whenever the connection has ended.

    joining = asyncio.create_task(keep_joined(server, place, claim, joined))
    await joined.wait()                 # the server has let it in

One connection waits at the server's gate (`gate.py`) until a client there has it; then the engine
makes the next one, so that the server's machine is the only one that others must reach.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket

from pagemill.config import ConfigError
from pagemill.engine.engine_server import EngineServer
from pagemill.engine.meeting_place import MeetingPlace
from pagemill.engine.remote.connection_options import set_connection_options
from pagemill.engine.remote.handshake import HandshakeError, prove
from pagemill.engine.remote.join_messages import JOIN_PROTOCOL, Answer, Claim, Verdict

_LOGGER = logging.getLogger("pagemill.engine")
_RETRY_S = 1.0
_HANDSHAKE_S = 10.0


class _RefusedError(Exception):
    """The server does not want the engine; `passes` says whether that may change."""

    def __init__(self, reason: str, *, passes: bool) -> None:
        super().__init__(reason)
        self.passes = passes


async def keep_joined(
    server: EngineServer, place: MeetingPlace, claim: Claim, joined: asyncio.Event
) -> None:
    """Lets clients at `place` reach `server` until it is cancelled; sets `joined` when the engine
    has joined for the first time.

    Raises:
        ConfigError: the engine does not belong to the server. Once it has joined, it waits for one
            to which it belongs.
    """
    where, logged = place.address, ""
    while True:
        try:
            connection = await _join(place, claim)
        except _RefusedError as error:
            if not joined.is_set() and not error.passes:
                raise ConfigError(f"the server at {where} refuses this engine: {error}") from error
            problem = f"the server at {where} does not let engine {claim.engine} in: {error}"
        except (OSError, TimeoutError):
            problem = (
                f"engine {claim.engine} waits for the server, which does not answer at {where}"
            )
        else:
            if not joined.is_set() or logged:
                _LOGGER.info("engine %d has joined the server at %s", claim.engine, where)
            joined.set()
            logged = ""
            if await _has_begun(connection):
                with contextlib.suppress(OSError):  # the client has gone
                    await server.take(connection)
            else:
                await asyncio.sleep(_RETRY_S)
            continue
        if problem != logged:
            _LOGGER.warning("%s", problem)
            logged = problem
        await asyncio.sleep(_RETRY_S)


async def _join(place: MeetingPlace, claim: Claim) -> socket.socket:
    """A connection that waits at the gate.

    Raises:
        _RefusedError: the server refuses the engine, or is none.
        OSError, TimeoutError: it does not answer.
    """
    family = socket.AF_INET6 if ":" in place.host else socket.AF_INET
    connection = socket.socket(family, socket.SOCK_STREAM)
    try:
        connection.setblocking(False)
        set_connection_options(connection)
        async with asyncio.timeout(_HANDSHAKE_S):
            loop = asyncio.get_running_loop()
            await loop.sock_connect(connection, (place.host, place.port))
            if connection.getsockname() == connection.getpeername():
                # TCP connects to itself if the system chooses the port that nothing listens at.
                raise ConnectionRefusedError
            answer = await prove(connection, JOIN_PROTOCOL, place.secret, claim.encode())
        try:
            said = Answer.decode(answer)
        except ValueError as error:
            raise HandshakeError(JOIN_PROTOCOL.stranger) from error
        if said.verdict is not Verdict.JOINED:
            raise _RefusedError(said.reason, passes=said.verdict is Verdict.LATER)
    except HandshakeError as error:
        connection.close()
        raise _RefusedError(str(error), passes=False) from error
    except BaseException:
        connection.close()
        raise
    return connection


async def _has_begun(connection: socket.socket) -> bool:
    """Waits until a client has `connection`; False, and it is closed, if it ends before."""
    try:
        if await asyncio.get_running_loop().sock_recv(connection, 1):
            return True
    except OSError:
        pass
    except asyncio.CancelledError:
        connection.close()
        raise
    connection.close()
    return False
