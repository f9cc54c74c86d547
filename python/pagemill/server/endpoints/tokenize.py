"""`POST /tokenize`, `POST /detokenize` and `GET /tokenizer_info`."""

from __future__ import annotations

import asyncio
from typing import Any

from msgspec import structs

from pagemill.inputs.rendered_prompt import RenderedPrompt
from pagemill.server.access.caller import Caller
from pagemill.server.chat import check_chat, rendered_prompt
from pagemill.server.errors import bad_request
from pagemill.server.pipeline import Pipeline
from pagemill.server.protocol.chat import ChatRequest
from pagemill.server.protocol.tokenize import (
    TOKEN_ROLES,
    DetokenizeRequest,
    DetokenizeResponse,
    TokenizeRequest,
    TokenizeResponse,
    TokenizerInfo,
)
from pagemill.server.state import ServerState
from pagemill.server.text_files import TextFiles
from pagemill.server.time_limit import in_time


async def create(server: ServerState, body: TokenizeRequest, caller: Caller) -> TokenizeResponse:
    """The tokens of a prompt, as the model would get it."""
    pipeline, _ = server.models.resolve(body.model, caller)
    tokens = (await _rendered(server, pipeline, body, caller)).token_ids.tolist()
    texts = None
    if body.return_token_strs:
        text = pipeline.renderer.token_text
        texts = await asyncio.to_thread(lambda: [text(token) for token in tokens])
    return TokenizeResponse(len(tokens), pipeline.model.max_model_len, tokens, texts)


async def undo(server: ServerState, body: DetokenizeRequest, caller: Caller) -> DetokenizeResponse:
    """The text of tokens."""
    pipeline, _ = server.models.resolve(body.model, caller)
    size = pipeline.model.vocab_size
    if any(token >= size for token in body.tokens):
        raise bad_request(f"`tokens` has an id beyond the vocabulary of {size} tokens.", "tokens")
    text = await pipeline.rendering.decode(body.tokens, skip_special_tokens=False)
    return DetokenizeResponse(text)


async def describe(server: ServerState, body: dict[str, Any], caller: Caller) -> TokenizerInfo:
    """What a client needs to know of the tokenizer to write prompts itself."""
    del body
    pipeline, _ = server.models.resolve(None, caller)
    renderer, model = pipeline.renderer, pipeline.model
    return TokenizerInfo(
        vocab_size=model.vocab_size,
        model_max_length=model.max_model_len,
        chat_template=renderer.chat_template,
        **{role: renderer.special_tokens.get(role) for role in TOKEN_ROLES},
    )


async def _rendered(
    server: ServerState, pipeline: Pipeline, body: TokenizeRequest, caller: Caller
) -> RenderedPrompt:
    if (body.prompt is None) == (body.messages is None):
        raise bad_request("Send one of `prompt` and `messages`.", "prompt")
    if body.messages is None:
        assert body.prompt is not None
        adds = body.add_special_tokens is not False
        (rendered,) = await pipeline.rendering.prompts(
            [body.prompt], adds, body.parse_special, "prompt"
        )
        return rendered
    files = TextFiles(server, caller, "messages")
    request = ChatRequest(
        messages=await files.unread().in_messages(body.messages),
        add_special_tokens=body.add_special_tokens is True,
        add_generation_prompt=body.add_generation_prompt,
        continue_final_message=body.continue_final_message,
        chat_template_kwargs=body.chat_template_kwargs,
        tools=body.tools,
    )
    check_chat(request)
    async with in_time(pipeline.deadline(None, caller)):
        messages = await files.in_messages(body.messages)
        request = structs.replace(request, messages=messages)
        return await rendered_prompt(pipeline.rendering, request, caller)
