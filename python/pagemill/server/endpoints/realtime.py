"""`/v1/realtime`."""

from __future__ import annotations

from pagemill.server.access.caller import Caller
from pagemill.server.protocol.realtime import ConnectRequest
from pagemill.server.realtime.session import Session
from pagemill.server.state import ServerState


async def connect(server: ServerState, body: ConnectRequest, caller: Caller) -> Session:
    """Begins a conversation, or transcriptions, over a WebSocket, in OpenAI's realtime events."""
    return Session(server, caller, body)
