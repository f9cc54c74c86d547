"""What a request says about where it should go."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from dataclasses import replace

import msgspec

from pagemill.config import RouterConfig
from pagemill.inputs.rendered_prompt import RenderedPrompt
from pagemill.router.fleet import Hint
from pagemill.server.access.caller import ANONYMOUS
from pagemill.server.chat import rendered_prompt
from pagemill.server.cohere import chat as cohere_chat
from pagemill.server.endpoints.table import endpoint_named
from pagemill.server.errors import ApiError
from pagemill.server.messages import chat as messages_chat
from pagemill.server.protocol.chat import ChatRequest
from pagemill.server.protocol.cohere_chat import CohereChatRequest
from pagemill.server.protocol.completion import CompletionRequest, prompts
from pagemill.server.protocol.decode import decode_fields, decode_object
from pagemill.server.protocol.messages import MessagesRequest
from pagemill.server.protocol.responses import ResponsesRequest
from pagemill.server.rendering import Rendering
from pagemill.server.responses import request as response_request
from pagemill.server.responses.input import items_of
from pagemill.server.text_files import TextFiles

_ROWS = (
    *("chat_completions", "completions", "messages", "responses"),
    *("cohere_chat", "cohere_chat_prefixed"),
)
_WITH_PROMPT = {row.path: row for row in map(endpoint_named, _ROWS)}
_MAX_SESSION_BYTES = 256
_MAX_WAIT_S = 2.0
"""For a prompt that is rendered: others may be before it, and its server renders it, too."""


class _SessionFields(msgspec.Struct):
    session_id: str = ""
    prompt_cache_key: str = ""


class HintReader:
    """Reads of a request what the policy uses. Belongs to one event loop."""

    def __init__(self, config: RouterConfig, rendering: Rendering | None) -> None:
        """`rendering` is of the servers' model; the policy prefix_aware needs it."""
        self._policy = config.policy
        self._header = config.session_header.lower()
        self._rendering = rendering

    async def read(
        self, path: str, headers: Mapping[str, str], body: bytes, tenant: str = ""
    ) -> Hint:
        """The hint of a request of `tenant`; an empty one if its body is not what servers take, or
        there is none in time. They say why, so nothing is refused here."""
        try:
            if self._policy == "session":
                return Hint(session=self._session(headers, body))
            if self._policy == "prefix_aware" and self._rendering is not None:
                return await _in_time(_prompt(self._rendering, path, body, tenant))
        except (ApiError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            pass
        return Hint()

    def _session(self, headers: Mapping[str, str], body: bytes) -> str:
        session = headers.get(self._header, "")
        if not session:
            fields = msgspec.json.decode(body, type=_SessionFields)
            session = fields.session_id or fields.prompt_cache_key
        return session[:_MAX_SESSION_BYTES]


async def _in_time(prompt: Coroutine[None, None, Hint]) -> Hint:
    """What `prompt` returns, or an empty hint if that takes too long. What has begun in a thread is
    not waited for."""
    task = asyncio.ensure_future(prompt)
    task.add_done_callback(lambda done: done.cancelled() or done.exception())  # seen
    try:
        await asyncio.wait({task}, timeout=_MAX_WAIT_S)
        return task.result() if task.done() else Hint()
    finally:
        task.cancel()


async def _prompt(rendering: Rendering, path: str, body: bytes, tenant: str) -> Hint:
    """The tokens of the prompt, of the first one if there are several.

    Raises:
        ApiError: the server would refuse the request.
    """
    row = _WITH_PROMPT.get(path)
    kind = row.request_type() if row is not None else None
    if kind is None:
        return Hint()
    request = decode_fields(decode_object(body), kind.kind, kind.rules)
    if isinstance(request, MessagesRequest):
        texts = await TextFiles(None, ANONYMOUS, "messages").in_documents(request)
        request = messages_chat.chat_request(texts)
    if isinstance(request, CohereChatRequest):
        request = cohere_chat.chat_request(request, bounds_thinking=False)
    if isinstance(request, ResponsesRequest):
        if request.previous_response_id is not None or request.conversation is not None:
            return Hint()  # only the server has what comes before
        sent = await TextFiles(None, ANONYMOUS, "input").in_items(request.input)
        request = response_request.chat_request(request, items_of(sent))
    if isinstance(request, ChatRequest):
        texts = await TextFiles(None, ANONYMOUS, "messages").in_messages(request.messages)
        request = msgspec.structs.replace(request, messages=texts)
        caller = replace(ANONYMOUS, tenant=tenant)
        prompt = await rendered_prompt(rendering, request, caller)  # it keeps no images
    else:
        assert isinstance(request, CompletionRequest)
        prompt = await _completed(rendering, request)
    return Hint(prompt.token_ids.tolist(), request.cache_salt or "")


async def _completed(rendering: Rendering, request: CompletionRequest) -> RenderedPrompt:
    """The first prompt of a completion."""
    sent = prompts(request.prompt)[:1]
    adds, parses = request.add_special_tokens, request.parse_special
    infill = rendering.renderer.infill
    if request.suffix and infill is not None:
        (prompt,) = await rendering.infills(
            infill, sent, request.suffix, add_special_tokens=adds, parse_special=parses
        )
        return prompt
    (prompt,) = await rendering.prompts(sent, adds, parses, "prompt")
    return prompt
