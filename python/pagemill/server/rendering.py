"""Texts and messages to prompts of token ids, without holding up the event loop.

Small texts are tokenized at once. Large ones go to a thread, a bounded number of bytes at a time;
a text that cannot fit the context is refused untokenized. Chat templates run in other processes.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from pagemill.config.env import cache_folder
from pagemill.config.model import ModelConfig
from pagemill.inputs.late_interaction import LateInteraction
from pagemill.inputs.rendered_prompt import RenderedPrompt
from pagemill.render.errors import RenderError
from pagemill.render.events import Piece
from pagemill.render.formats.checkpoint import Checkpoint
from pagemill.render.formats.table import check_names, marker_ids
from pagemill.render.infill import Infill
from pagemill.render.model_files import RenderSource, chat_row, open_tokenizer, read_template
from pagemill.render.output_machine import FormatNames, Formats
from pagemill.render.renderer import ChatPrompt
from pagemill.render.renderer import Renderer as TextRenderer
from pagemill.render.template_process import MAX_PROCESSES
from pagemill.render.token_id_renderer import AnyRenderer, TokenIdRenderer
from pagemill.render.token_reach import utf8_bytes
from pagemill.render.tokenizer import NO_LIMITS, TextLimits, TextPair, TextTokenizer
from pagemill.server.errors import ApiError, bad_request
from pagemill.server.media import Media, NoMedia
from pagemill.server.prompt_embeds import decoded_embeds
from pagemill.server.shared_places import SharedPlaces
from pagemill.server.text_gate import TextGate
from pagemill.server.threads import Threads
from pagemill.structured.vocabulary import Vocabulary

T = TypeVar("T")

# Tokenizing takes about 1 us per 4 characters; a hop to a thread about 100 us.
INLINE_CHARS = 4096
MAX_BYTES_AT_ONCE = 8 * 2**20
MAX_PAIR_CHARS = 2**24  # of all pairs: a short body has many if their first text is the same
MAX_RENDERS = 256  # running and waiting
# What a text this large took is returned to the system, once its request has probably ended.
TRIM_CHARS = 2**20
_TRIM_AFTER_S = 1.0
# From <malloc.h>.
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3


class Detokenizer(Protocol):
    """Token ids in, complete characters out."""

    def push(self, token_ids: Sequence[int]) -> str: ...

    def piece(self, token_id: int) -> Piece: ...

    def flush(self) -> str: ...


class Renderer(Protocol):
    """The part of `render.Renderer` that the server uses."""

    has_text: bool
    eos_token_ids: tuple[int, ...]
    formats: Formats
    markers: Mapping[str, int]
    special_tokens: Mapping[str, str]
    infill: Infill | None
    chat_template: str | None
    chat_variables: frozenset[str]

    def encode(
        self, text: str, add_special_tokens: bool = True, parse_special: bool = False
    ) -> list[int]: ...

    def encode_pair(self, first: str, second: str | None, limits: TextLimits = ...) -> TextPair: ...

    def render_chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        template_kwargs: Mapping[str, Any] | None = None,
    ) -> ChatPrompt: ...

    def encode_prompt(self, prompt: ChatPrompt, add_special_tokens: bool = False) -> list[int]: ...

    def min_tokens(self, text: str, enough: int) -> int: ...

    def head(self, text: str, num_tokens: int) -> str: ...

    def decode(self, token_ids: Sequence[int], skip_special_tokens: bool = True) -> str: ...

    def detokenizer(
        self, prompt_token_ids: Sequence[int] = (), skip_special_tokens: bool = True
    ) -> Detokenizer: ...

    def token_bytes(self, token_id: int) -> bytes: ...

    def token_text(self, token_id: int) -> str: ...


class Rendering:
    """A model's renderer for the requests of one server. Belongs to one event loop."""

    def __init__(self, renderer: Renderer, max_model_len: int, media: Media | None = None) -> None:
        """`media` None: the model takes none."""
        self.renderer = renderer
        self.media: Media = media or NoMedia()
        self._max_model_len = max_model_len
        self._gate = TextGate(MAX_BYTES_AT_ONCE)
        self._places = SharedPlaces(
            MAX_RENDERS, "Too many chat requests wait for their chat template; try again."
        )
        self._trims = False
        self._threads = Threads(MAX_PROCESSES, "chat-template")

    async def chat(
        self, render: Callable[[], ChatPrompt], add_special_tokens: bool, tenant: str = ""
    ) -> RenderedPrompt:
        """The prompt of what `render`, which calls `Renderer.render_chat`, returns, in the share of
        `tenant`.

        Raises:
            ApiError: 400 if the messages or the template cannot be rendered, or the prompt cannot
                fit; 429 if too many requests wait for their templates.
        """
        with _refusals():
            async with self._places.place(tenant):
                prompt = await self._threads.run(tenant, render)
            token_ids = await self._tokenized(
                [prompt.text],
                lambda: self.renderer.encode_prompt(prompt, add_special_tokens),
                "messages",
            )
        return _text_prompt(token_ids, "messages")

    async def prompts(
        self,
        prompts: Sequence[str | list[int]],
        add_special_tokens: bool,
        parse_special: bool,
        param: str,
        *,
        keeps_head: bool = False,
    ) -> list[RenderedPrompt]:
        """Each prompt of a request's field `param`: a text, or token ids, which stay as they are.

        `keeps_head`: no more than the first tokens that fit are wanted.

        Raises:
            ApiError: 400 if a text cannot be tokenized, or cannot fit, or ids are out of range.
        """

        if keeps_head and sum(map(len, prompts)) > INLINE_CHARS:
            prompts = await asyncio.to_thread(self._heads, prompts)

        def encode() -> list[list[int]]:
            encode = self.renderer.encode
            return [
                encode(prompt, add_special_tokens, parse_special)
                if isinstance(prompt, str)
                else prompt
                for prompt in prompts
            ]

        texts = [prompt for prompt in prompts if isinstance(prompt, str)]
        with _refusals():
            token_ids = await self._tokenized(texts, encode, param)
        return [_text_prompt(ids, param) for ids in token_ids]

    async def infills(
        self,
        infill: Infill,
        prefixes: Sequence[str | list[int]],
        suffix: str,
        *,
        add_special_tokens: bool,
        parse_special: bool,
    ) -> list[RenderedPrompt]:
        """The prompt of each prefix, a text or token ids, with the same suffix.

        Raises:
            ApiError: 400 if a text cannot be tokenized, or cannot fit, or there is too much.
        """
        texts = [prefix if isinstance(prefix, str) else "" for prefix in prefixes]
        self.check_pairs([(text, suffix) for text in texts], "suffix")
        with _refusals():
            if len(suffix) > INLINE_CHARS:
                await asyncio.to_thread(self._checked_bytes, [suffix], "suffix")
            token_ids = await self._tokenized(
                [*texts, *(suffix for _ in texts)],
                lambda: infill.prompts(
                    prefixes,
                    suffix,
                    add_special_tokens=add_special_tokens,
                    parse_special=parse_special,
                ),
                "prompt",
            )
        return [_text_prompt(ids, "prompt") for ids in token_ids]

    async def embeds(self, sent: Sequence[str], width: int) -> list[RenderedPrompt]:
        """Each prompt of `prompt_embeds`, for a model whose embeddings have `width` numbers.

        Raises:
            ApiError: 400 if one cannot be read, or does not fit the model.
        """
        size = sum(map(len, sent))
        return await self._gate.run(size, lambda: decoded_embeds(sent, width, self._max_model_len))

    async def pairs(
        self, pairs: Sequence[tuple[str, str | None]], param: str, limits: TextLimits
    ) -> list[RenderedPrompt]:
        """Each pair of texts as one prompt, for a model that reads them together; or each first
        text, without a second one. Texts lose their ends to keep to `limits`.

        Raises:
            ApiError: 400 if a text cannot be tokenized, or cannot fit, or there is too much.
        """
        num_chars = self.check_pairs(pairs, param)
        texts = [text for pair in pairs for text in pair if text is not None]
        if limits != NO_LIMITS and num_chars > INLINE_CHARS:
            pairs = await asyncio.to_thread(self._heads_of_pairs, pairs, limits)
            texts = [text for pair in pairs for text in pair if text is not None]

        def encode() -> list[TextPair]:
            return [self.renderer.encode_pair(*pair, limits) for pair in pairs]

        with _refusals():
            encoded = await self._tokenized(texts, encode, param)
        return [
            RenderedPrompt(_text_prompt(ids, param).token_ids, second_text_start=start)
            for ids, start in encoded
        ]

    def check_pairs(self, pairs: Sequence[tuple[str, str | None]], param: str) -> int:
        """The characters of all pairs.

        Raises:
            ApiError: 400: there are too many.
        """
        num_chars = sum(len(text) for pair in pairs for text in pair if text is not None)
        if num_chars > MAX_PAIR_CHARS:
            raise bad_request(
                f"`{param}` and what they are read with have {num_chars} characters in"
                f" {len(pairs)} pairs; at most {MAX_PAIR_CHARS} are read at a time: send fewer.",
                param,
            )
        return num_chars

    def least_tokens(self, text: str, param: str, before: int = 0) -> int:
        """How many tokens `text` has at least, with those `before` it. Slow if it is long: not for
        the event loop.

        Raises:
            ApiError: 400: they cannot fit.
        """
        limit = self._max_model_len
        least = before + self.renderer.min_tokens(text, limit + 1)
        if least > limit:
            raise bad_request(
                f"This model's maximum context length is {limit} tokens, but `{param}` has a text"
                f" of {utf8_bytes(text)} bytes, with which it has at least {least} tokens. Shorten"
                " it; so long a text is not tokenized in order to truncate it.",
                param,
            )
        return least

    async def decode(self, token_ids: Sequence[int], skip_special_tokens: bool) -> str:
        """The text of `token_ids`.

        Raises:
            ApiError: 400: the server writes no text.
        """
        with _refusals():
            if len(token_ids) <= INLINE_CHARS:
                return self.renderer.decode(token_ids, skip_special_tokens)
            return await asyncio.to_thread(self.renderer.decode, token_ids, skip_special_tokens)

    async def _tokenized(self, texts: Sequence[str], work: Callable[[], T], param: str) -> T:
        num_chars = sum(map(len, texts))
        if num_chars <= INLINE_CHARS:
            return work()
        try:
            size = await asyncio.to_thread(self._checked_bytes, texts, param)
            return await self._gate.run(size, work)
        finally:
            if num_chars >= TRIM_CHARS and not self._trims:
                self._trims = True
                asyncio.get_running_loop().call_later(_TRIM_AFTER_S, self._trim)

    def _heads(self, prompts: Sequence[str | list[int]]) -> list[str | list[int]]:
        return [self._head(prompt) if isinstance(prompt, str) else prompt for prompt in prompts]

    def _heads_of_pairs(
        self, pairs: Sequence[tuple[str, str | None]], limits: TextLimits
    ) -> list[tuple[str, str | None]]:
        """What the limits can leave of texts, so that long ends are not tokenized."""
        cuts_first = limits.first is not None or limits.prompt is not None
        cuts_second = limits.second is not None or limits.prompt is not None
        return [
            (
                self._head(first) if cuts_first else first,
                self._head(second) if cuts_second and second is not None else second,
            )
            for first, second in pairs
        ]

    def _head(self, text: str) -> str:
        return self.renderer.head(text, self._max_model_len) if len(text) > INLINE_CHARS else text

    def _trim(self) -> None:
        self._trims = False
        asyncio.get_running_loop().run_in_executor(None, _return_free_memory)

    def _checked_bytes(self, texts: Sequence[str], param: str) -> int:
        for text in texts:
            if len(text) > INLINE_CHARS:
                self.least_tokens(text, param)
        return sum(map(utf8_bytes, texts))


def check_options(config: ModelConfig) -> None:
    """Checks what needs no model, so that a mistake does not end the start after minutes.

    Raises:
        RenderError: a parser is unknown, or the chat template cannot be read.
    """
    check_names(config.reasoning_parser, config.tool_call_parser)
    if config.chat_template is not None:
        read_template(config.chat_template)


def open_renderer(source: RenderSource, config: ModelConfig) -> AnyRenderer:
    """The renderer of an opened model; bounds the free memory that this process keeps.

    Raises:
        RenderError: the tokenizer or the template cannot be used.
    """
    _bound_free_memory()
    if config.skip_tokenizer_init:
        return TokenIdRenderer.open(source)
    cache = cache_folder(config.cache_dir)
    formats = FormatNames(config.reasoning_parser, config.tool_call_parser)
    return TextRenderer.open(
        source,
        config.chat_template,
        config.trust_control_tokens,
        cache,
        formats,
        mode=config.tokenizer_mode,
        content_format=config.chat_template_content_format,
    )


def open_late_interaction(source: RenderSource, renderer: AnyRenderer) -> LateInteraction:
    """How an opened model reads texts whose vectors of tokens are compared.

    Raises:
        RenderError: a file that says it cannot be read.
    """
    from pagemill.render.late_interaction import late_interaction

    return late_interaction(source, renderer)


def vocabulary_opener(
    renderer: AnyRenderer, vocab_size: int, eos_token_ids: tuple[int, ...]
) -> Callable[[], Vocabulary] | None:
    """What opens the vocabulary of a model whose logits have `vocab_size` rows, for grammars; None
    if no tokenizer is loaded."""
    if not isinstance(renderer, TextRenderer):
        return None
    return lambda: _vocabulary(renderer.tokenizer, vocab_size, eos_token_ids)


def _vocabulary(
    tokenizer: TextTokenizer, vocab_size: int, eos_token_ids: tuple[int, ...]
) -> Vocabulary:
    markers = marker_ids(tokenizer.added_token_id, Checkpoint(tokenizer.added_tokens))
    return Vocabulary(tokenizer, vocab_size, eos_token_ids, markers)


def open_vocabulary(
    source: RenderSource, config: ModelConfig, vocab_size: int, eos_token_ids: Sequence[int]
) -> Vocabulary:
    """The vocabulary of an opened model, for grammars.

    Args:
        source: the model.
        config: its configuration.
        vocab_size: of its logits.
        eos_token_ids: those of the model's configuration; the tokenizer may know more.

    Raises:
        RenderError: the tokenizer cannot be used.
    """
    has_own_template = config.chat_template is not None
    row = chat_row(source, config.tokenizer_mode, has_own_template=has_own_template)
    opened = open_tokenizer(source, cache_folder(config.cache_dir), row)
    ends = tuple(dict.fromkeys((*eos_token_ids, *opened.eos_token_ids)))
    return _vocabulary(opened.tokenizer, vocab_size, ends)


def _bound_free_memory() -> None:
    # By default glibc learns from large blocks to keep up to 64 MiB in each thread's arena. Fixed
    # thresholds switch that off. Other C libraries have no such calls, and need none.
    with contextlib.suppress(AttributeError):
        library = ctypes.CDLL(None)
        library.mallopt(_M_MMAP_THRESHOLD, 2**20)
        library.mallopt(_M_TRIM_THRESHOLD, 2**24)


def _return_free_memory() -> None:
    with contextlib.suppress(AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def _text_prompt(token_ids: Sequence[int], param: str) -> RenderedPrompt:
    try:
        return RenderedPrompt.of(token_ids)
    except OverflowError as error:
        raise bad_request(
            f"`{param}` holds a token id that does not fit 32 bits.", param
        ) from error


@contextlib.contextmanager
def _refusals() -> Generator[None, None, None]:
    try:
        yield
    except RenderError as error:
        raise bad_request(_sentence(error.message), error.param) from error
    except RecursionError as error:
        raise ApiError(400, "The request is nested too deeply to be rendered.") from error


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + ("" if text.endswith(".") else ".")
