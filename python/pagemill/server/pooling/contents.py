"""Queries, documents and inputs that may have images and other media: each of them is a text, or
parts of a chat's message, which the model's chat template writes.

    documents = read_contents(body.documents, "documents", most_tokens=0)
    chats = [Chat([{"role": "user", "content": content}], ["documents"]) for content in ...]
    num_tokens = await pool_chats(pipeline, chats, options, take)
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from pagemill.inputs.prepared_media import PreparedMedia
from pagemill.inputs.rendered_prompt import RenderedPrompt
from pagemill.server.chat import check_chat, read_media, rendered_prompt
from pagemill.server.errors import ApiError, bad_request
from pagemill.server.generation_options import GenerationOptions
from pagemill.server.media_work import MediaBudget
from pagemill.server.pipeline import Pipeline
from pagemill.server.protocol import score as protocol
from pagemill.server.protocol.chat import ChatRequest, check_messages
from pagemill.server.time_limit import in_time

_AT_ONCE = 8
"""Chats of a request that are rendered at once; with media, as many are pooled together: prepared
media are large."""

Content = str | list[dict[str, Any]]
"""A text, or the parts of a message."""


class Contents(NamedTuple):
    """Contents of a request, the field that they came from, and the most tokens of each text; None
    = all that fit."""

    contents: Sequence[Content]
    param: str
    most_tokens: int | None = None

    @property
    def has_parts(self) -> bool:
        """Whether one is no text."""
        return any(not isinstance(content, str) for content in self.contents)

    @property
    def texts(self) -> list[str]:
        """Those that are texts."""
        return [content for content in self.contents if isinstance(content, str)]

    def field(self, index: int) -> str:
        """The name of one of them in messages of errors."""
        return self.param if len(self.contents) == 1 else f"{self.param}[{index}]"


class Chat(NamedTuple):
    """The messages of a prompt, and the field of the request that each came from. The first media
    are `read` already."""

    messages: Sequence[dict[str, Any]]
    fields: Sequence[str]
    read: Sequence[PreparedMedia] = ()


class _Written(NamedTuple):
    """How the chats of a request are written: with the special tokens of texts or not, variables of
    their template, and the time for their media."""

    add_special_tokens: bool = False
    variables: Mapping[str, Any] = {}
    budget: MediaBudget | None = None


def read_contents(sent: protocol.Contents, param: str, most_tokens: int) -> Contents:
    """What a request's field `param` has; `most_tokens` of each text, 0 = all.

    Raises:
        ApiError: 400: one has neither a text nor parts, or both; or there is a limit, which is for
            texts, and one has parts.
    """
    listed = sent if isinstance(sent, list) else [sent]
    found = Contents([_read(each, param) for each in listed], param, most_tokens or None)
    if most_tokens and found.has_parts:
        limit = "max_tokens_per_query" if param.startswith("quer") else "max_tokens_per_doc"
        raise bad_request(f"`{limit}` cuts texts, and `{param}` has parts: leave it out.", limit)
    return found


def _read(sent: protocol.Content, param: str) -> Content:
    if isinstance(sent, str):
        return sent
    if sent.text is not None and sent.content is None:
        return sent.text
    if sent.content is not None and sent.text is None:
        return sent.content
    raise bad_request(f"An object in `{param}` must have either `text` or `content`.", param)


def check_parts(content: list[dict[str, Any]], field: str) -> None:
    """Checks the parts of a request's `field`.

    Raises:
        ApiError: 400: one is none.
    """
    with _named([field]):
        check_messages([{"role": "user", "content": content}])


def text_of(content: Content) -> str:
    """The text of a content, or of its parts."""
    if isinstance(content, str):
        return content
    texts = (part.get("text") for part in content)
    return "".join(text for text in texts if isinstance(text, str))


async def with_media(pipeline: Pipeline, chat: Chat, options: GenerationOptions) -> Chat:
    """The chat with its media read, for chats that begin with it.

    Raises:
        ApiError: see `Media.read`; the message names the field.
    """
    with _named(chat.fields):
        request = _request(chat, options, _Written())
        check_chat(request)
        async with in_time(pipeline.deadline(options.timeout_s, options.caller)):
            read = await read_media(pipeline.rendering, request, options.caller)
    return chat._replace(read=read)


async def pool_chats(
    pipeline: Pipeline,
    chats: Sequence[Chat],
    options: GenerationOptions,
    take: Callable[[int, np.ndarray], None],
    *,
    add_special_tokens: bool = False,
    variables: Mapping[str, Any] | None = None,
) -> int:
    """As `Pipeline.pool_each`, of what the chat template makes of `chats`, with further variables.

    Raises:
        ApiError: as `pool_each`, or a chat cannot be rendered; the message names its field.
    """
    if options.truncate_prompt_tokens is not None:
        raise bad_request(
            "`truncate_prompt_tokens` would cut the end of the chat template: limit texts by"
            " `max_tokens_per_query` and `max_tokens_per_doc`, or send smaller images.",
            "truncate_prompt_tokens",
        )
    written = _Written(add_special_tokens, variables or {}, MediaBudget())
    num_tokens = first = 0
    prompts: list[RenderedPrompt] = []
    for start in range(0, len(chats), _AT_ONCE):
        end = start + _AT_ONCE
        prompts += await _rendered(pipeline, chats[start:end], options, written)
        if end < len(chats) and not any(prompt.media for prompt in prompts):
            continue
        num_tokens += await pipeline.pool_each(prompts, options, _shifted(take, first))
        first, prompts = first + len(prompts), []
    return num_tokens


def _shifted(
    take: Callable[[int, np.ndarray], None], first: int
) -> Callable[[int, np.ndarray], None]:
    return lambda index, rows: take(first + index, rows)


async def _rendered(
    pipeline: Pipeline, chats: Sequence[Chat], options: GenerationOptions, written: _Written
) -> list[RenderedPrompt]:
    """The prompts of a few chats, rendered at once."""

    async def render(chat: Chat) -> RenderedPrompt:
        request = _request(chat, options, written)
        with _named(chat.fields):
            check_chat(request)
            async with in_time(pipeline.deadline(options.timeout_s, options.caller)):
                return await rendered_prompt(
                    pipeline.rendering, request, options.caller, chat.read, written.budget
                )

    tasks = [asyncio.ensure_future(render(chat)) for chat in chats]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _request(chat: Chat, options: GenerationOptions, written: _Written) -> ChatRequest:
    return ChatRequest(
        messages=list(chat.messages),
        add_special_tokens=written.add_special_tokens,
        chat_template_kwargs=dict(written.variables),
        cache_salt=options.cache_salt or None,
    )


@contextlib.contextmanager
def _named(fields: Sequence[str]) -> Generator[None]:
    """Refusals in here name fields of the request in place of messages."""
    try:
        yield
    except ApiError as error:
        named = {f"messages[{at}]": field for at, field in enumerate(fields)}
        found = next((field for name, field in named.items() if name in error.message), fields[-1])
        message = error.message.replace("`messages`", f"`{found}`")
        for name, field in named.items():
            message = message.replace(name, field)
        is_renamed = error.param in (None, "messages")
        param = found.partition("[")[0] if is_renamed else error.param
        raise ApiError(
            error.status, message, param, error.type_name, error.retry_after_s
        ) from error
