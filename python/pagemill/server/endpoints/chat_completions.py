"""`POST /v1/chat/completions`."""

from __future__ import annotations

from pagemill.server.answer import Answer
from pagemill.server.caller import Caller
from pagemill.server.chat import start_chat
from pagemill.server.chat_wording import ChatWording
from pagemill.server.protocol.chat import ChatRequest
from pagemill.server.respond import respond
from pagemill.server.state import ServerState


async def create(server: ServerState, body: ChatRequest, caller: Caller) -> Answer:
    """Answers the last of a list of messages."""
    pipeline, _ = server.models.resolve(body.model, caller)
    generation = await start_chat(pipeline, body, caller)
    name, has_metrics = f"chatcmpl-{body.request_id}", server.config.enable_per_request_metrics
    wording = ChatWording(pipeline, body, name, generation, has_metrics)
    interval = max(server.config.stream_interval, body.stream_interval)
    return await respond(generation, wording, interval if body.stream else None)
