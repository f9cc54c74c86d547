"""`POST /v1/chat/completions`, of one conversation or a batch, and its rendering alone."""

from __future__ import annotations

import msgspec
from msgspec import UNSET

from pagemill.server.access.caller import Caller
from pagemill.server.answer import Answer
from pagemill.server.chat import in_conversation, render_chat, start_chat, start_chats
from pagemill.server.chat_wording import ChatWording
from pagemill.server.derender.request import rendered_chat
from pagemill.server.derender.stream import derendered_chunk
from pagemill.server.derender.whole import DerenderedAnswer, derendered
from pagemill.server.protocol.chat import RULES, ChatRequest, ChatResponse
from pagemill.server.protocol.chat_batch import BatchChatRequest, chats
from pagemill.server.protocol.decode import decode_fields
from pagemill.server.protocol.derender import ChatDerenderRequest, DerenderedChunk
from pagemill.server.protocol.generate import GenerateRequest
from pagemill.server.respond import respond
from pagemill.server.state import ServerState
from pagemill.server.text_files import TextFiles


async def create(server: ServerState, body: ChatRequest, caller: Caller) -> Answer:
    """Answers the last of a list of messages."""
    pipeline, _ = server.models.resolve(body.model, caller)
    body = await _with_texts(TextFiles(server, caller, "messages"), body)
    generation = await start_chat(pipeline, body, caller)
    name, has_metrics = f"chatcmpl-{body.request_id}", server.config.enable_per_request_metrics
    wording = ChatWording(pipeline, body, name, generation, has_metrics)
    interval = max(server.config.stream_interval, body.stream_interval)
    return await respond(generation, wording, interval if body.stream else None)


async def create_batch(server: ServerState, body: BatchChatRequest, caller: Caller) -> Answer:
    """Answers each of a list of conversations: a choice for each, in their order."""
    pipeline, _ = server.models.resolve(body.model, caller)
    files = TextFiles(server, caller, "messages")
    requests: list[ChatRequest] = []
    for index, chat in enumerate(chats(body)):
        with in_conversation(index):
            requests.append(await _with_texts(files, chat))
    generation = await start_chats(pipeline, requests, caller)
    name, has_metrics = f"chatcmpl-{body.request_id}", server.config.enable_per_request_metrics
    wording = ChatWording(pipeline, requests[0], name, generation, has_metrics)
    answer = await respond(generation, wording, None)
    if isinstance(answer, ChatResponse):
        answer.prompt_token_ids = UNSET  # it has room for those of one prompt
    return answer


async def render(server: ServerState, body: ChatRequest, caller: Caller) -> GenerateRequest:
    """The request of `/inference/v1/generate` that answers the same."""
    pipeline, _ = server.models.resolve(body.model, caller)
    return await render_chat(
        pipeline, await _with_texts(TextFiles(server, caller, "messages"), body), caller
    )


async def derender(
    server: ServerState, body: ChatDerenderRequest, caller: Caller
) -> DerenderedAnswer | DerenderedChunk:
    """The answer of a chat whose rendering `/inference/v1/generate` has answered, here or on
    another server; with `stream` an event of it."""
    sent = decode_fields(body.chat_request, ChatRequest, RULES)
    pipeline, _ = server.models.resolve(body.model or sent.model, caller)
    chat = await _with_texts(TextFiles(server, caller, "messages"), sent)
    rendered = await rendered_chat(pipeline, chat, caller)
    answered = derendered_chunk if body.stream else derendered
    return await answered(rendered, body)


async def _with_texts(files: TextFiles, chat: ChatRequest) -> ChatRequest:
    """The chat, with the text of files in their place."""
    return msgspec.structs.replace(chat, messages=await files.in_messages(chat.messages))
