"""`POST /v1/chat/completions`, of one conversation or a batch, and its rendering alone."""

from __future__ import annotations

import msgspec
from msgspec import UNSET

from pagemill.server.access.caller import Caller
from pagemill.server.answer import Answer
from pagemill.server.chat import (
    checked_fields,
    in_conversation,
    render_chat,
    start_chat,
    start_chats,
)
from pagemill.server.chat_wording import ChatWording
from pagemill.server.derender.request import rendered_chat
from pagemill.server.derender.stream import derendered_chunk
from pagemill.server.derender.whole import DerenderedAnswer, derendered
from pagemill.server.pipeline import Pipeline
from pagemill.server.protocol.chat import RULES, ChatRequest, ChatResponse
from pagemill.server.protocol.chat_batch import BatchChatRequest, chats
from pagemill.server.protocol.decode import decode_fields
from pagemill.server.protocol.derender import ChatDerenderRequest, DerenderedChunk
from pagemill.server.protocol.generate import GenerateRequest
from pagemill.server.respond import respond
from pagemill.server.state import ServerState
from pagemill.server.text_files import TextFiles
from pagemill.server.time_limit import in_time


async def create(server: ServerState, body: ChatRequest, caller: Caller) -> Answer:
    """Answers the last of a list of messages."""
    pipeline, _ = server.models.resolve(body.model, caller)
    body = await _with_texts(server, pipeline, body, caller)
    generation = await start_chat(pipeline, body, caller)
    name, has_metrics = f"chatcmpl-{body.request_id}", server.config.enable_per_request_metrics
    wording = ChatWording(pipeline, body, name, generation, has_metrics)
    interval = max(server.config.stream_interval, body.stream_interval)
    return await respond(generation, wording, interval if body.stream else None)


async def create_batch(server: ServerState, body: BatchChatRequest, caller: Caller) -> Answer:
    """Answers each of a list of conversations: a choice for each, in their order."""
    pipeline, _ = server.models.resolve(body.model, caller)
    sent = chats(body)
    files = TextFiles(server, caller, "messages")
    is_checked = False  # all of them but their messages are equal
    for index, chat in enumerate(sent):
        with in_conversation(index):
            is_checked = is_checked or await _check_first(files, pipeline, chat, caller)
    requests: list[ChatRequest] = []
    async with in_time(pipeline.deadline(sent[0].timeout, caller)):
        for index, chat in enumerate(sent):
            with in_conversation(index):
                messages = await files.in_messages(chat.messages)
            requests.append(msgspec.structs.replace(chat, messages=messages))
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
    return await render_chat(pipeline, await _with_texts(server, pipeline, body, caller), caller)


async def derender(
    server: ServerState, body: ChatDerenderRequest, caller: Caller
) -> DerenderedAnswer | DerenderedChunk:
    """The answer of a chat whose rendering `/inference/v1/generate` has answered, here or on
    another server; with `stream` an event of it."""
    sent = decode_fields(body.chat_request, ChatRequest, RULES)
    pipeline, _ = server.models.resolve(body.model or sent.model, caller)
    chat = await _with_texts(server, pipeline, sent, caller)
    rendered = await rendered_chat(pipeline, chat, caller)
    answered = derendered_chunk if body.stream else derendered
    return await answered(rendered, body)


async def _with_texts(
    server: ServerState, pipeline: Pipeline, chat: ChatRequest, caller: Caller
) -> ChatRequest:
    """The chat, with the text of files in their place, before which all else of it is checked."""
    files = TextFiles(server, caller, "messages")
    await _check_first(files, pipeline, chat, caller)
    async with in_time(pipeline.deadline(chat.timeout, caller)):
        messages = await files.in_messages(chat.messages)
    return msgspec.structs.replace(chat, messages=messages)


async def _check_first(
    files: TextFiles, pipeline: Pipeline, chat: ChatRequest, caller: Caller
) -> bool:
    """Checks all of the chat but its files; False: it has none."""
    unread = files.unread()
    messages = await unread.in_messages(chat.messages)
    if unread.num_files:
        checked_fields(pipeline, msgspec.structs.replace(chat, messages=messages), caller)
    return unread.num_files > 0
