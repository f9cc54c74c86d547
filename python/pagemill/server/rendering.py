"""Text to token ids, in a worker thread where it would hold up the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

from pagemill.render.errors import RenderError
from pagemill.render.renderer import Renderer as ModelRenderer
from pagemill.render.renderer import RenderSource
from pagemill.server.errors import ApiError, bad_request

T = TypeVar("T")

# Tokenizing takes about 1 us per 4 characters; a hop to a thread about 100 us.
INLINE_CHARS = 4096


class Detokenizer(Protocol):
    """Token ids in, complete characters out."""

    def push(self, token_ids: Sequence[int]) -> str: ...

    def flush(self) -> str: ...


class Renderer(Protocol):
    """The part of `render.Renderer` that the server uses."""

    eos_token_ids: tuple[int, ...]

    def encode(
        self, text: str, add_special_tokens: bool = True, parse_special: bool = False
    ) -> list[int]: ...

    def apply_chat_template(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        template_kwargs: Mapping[str, Any] | None = None,
    ) -> str: ...

    def decode(self, token_ids: Sequence[int], skip_special_tokens: bool = True) -> str: ...

    def detokenizer(
        self, prompt_token_ids: Sequence[int] = (), skip_special_tokens: bool = True
    ) -> Detokenizer: ...

    def token_bytes(self, token_id: int) -> bytes: ...

    def token_text(self, token_id: int) -> str: ...


def open_renderer(
    source: RenderSource, chat_template: str | None, cache: Path | None = None
) -> ModelRenderer:
    """The renderer of an opened model; `chat_template` (file or text) replaces the model's own.
    `cache`: see `ModelRenderer.open`.

    Raises:
        RenderError: the tokenizer or the template cannot be used.
    """
    return ModelRenderer.open(source, chat_template, cache)


async def rendered(work: Callable[[], T], size: int) -> T:
    """The result of `work`, which renders about `size` characters.

    Raises:
        ApiError: 400 where the text, the messages or the template cannot be rendered.
    """
    try:
        if size <= INLINE_CHARS:
            return work()
        return await asyncio.to_thread(work)
    except RenderError as error:
        raise bad_request(_sentence(error.message), error.param) from error
    except RecursionError as error:
        raise ApiError(400, "The request is nested too deeply to be rendered.") from error


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + ("" if text.endswith(".") else ".")
