"""Everything between text and token ids for one model.

renderer = Renderer.open(source)
ids = renderer.encode_chat([{"role": "user", "content": "Hi"}])
detokenizer = renderer.detokenizer(ids)
detokenizer.push([...])
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pagemill.render import tool_prompt
from pagemill.render.chat_messages import Message
from pagemill.render.detokenizer import Detokenizer
from pagemill.render.errors import RenderError
from pagemill.render.infill import Infill
from pagemill.render.model_files import (
    RenderSource,
    chat_row,
    media_texts,
    open_tokenizer,
    template_sources,
)
from pagemill.render.output_machine import FormatNames, Formats
from pagemill.render.renderers import table
from pagemill.render.renderers.base import ChatRenderer, IgnoredVariables
from pagemill.render.template_process import TemplateProcesses
from pagemill.render.template_wire import RenderRequest, Setup
from pagemill.render.tokenizer import NO_LIMITS, TextLimits, TextPair, TextTokenizer


@dataclass(frozen=True, slots=True)
class ChatPrompt:
    """What a chat renderer wrote; `Renderer.encode_prompt` tokenizes it.

    `has_stand_ins`: users' text holds control tokens, or parts of them. Those of the template are
    then private-use characters, and everything else is plain text. `token_ids`: the prompt, if the
    renderer makes tokens.
    """

    text: str
    has_stand_ins: bool = False
    token_ids: Sequence[int] | None = None


class Renderer:
    """A model's tokenizer, chat template and detokenizers. Immutable and thread-safe.

    Chat templates run in processes of their own; `close` ends them.
    """

    has_text = True
    """Tokens can be written as text, and read from it."""

    def __init__(
        self,
        tokenizer: TextTokenizer,
        chats: ChatRenderer | None,
        eos_token_ids: Sequence[int],
        trust_control_tokens: bool = False,
        formats: Formats | None = None,
        special_tokens: Mapping[str, str] | None = None,
        chat_template: str | None = None,
        chat_variables: frozenset[str] = frozenset(),
    ) -> None:
        """Joins the parts; `open` makes them.

        Args:
          tokenizer: the vocabulary.
          chats: None if the model has no template.
          eos_token_ids: tokens that end a generation.
          trust_control_tokens: control tokens in messages count, instead of being plain text.
          formats: those of the model's output; None: it writes text only.
          special_tokens: texts of tokens by their roles, such as "bos_token".
          chat_template: the text of `chats`, if it has one.
          chat_variables: those that `chats` reads, if they are known beforehand.
        """
        self.tokenizer = tokenizer
        self.special_tokens: Mapping[str, str] = special_tokens or {}
        self.chat_template = chat_template
        self.chat_variables = chat_variables
        self.formats: Formats = formats or Formats()
        self._chats = chats
        self._ignored = IgnoredVariables()
        self._trust_control_tokens = trust_control_tokens
        self.eos_token_ids: tuple[int, ...] = tuple(dict.fromkeys(eos_token_ids))
        self.vocab_size: int = tokenizer.vocab_size
        self.markers: Mapping[str, int] = _markers(tokenizer, self.formats)
        """Texts that the model writes as one token, which nothing else spells."""
        self.infill: Infill | None = Infill.of(tokenizer)
        """How the model fills in the middle; None: its vocabulary has no tokens for it."""

    @classmethod
    def open(
        cls,
        source: RenderSource,
        chat_template: str | None = None,
        trust_control_tokens: bool = False,
        cache: Path | None = None,
        formats: FormatNames | None = None,
        *,
        mode: str = table.AUTO,
        content_format: str = "auto",
    ) -> "Renderer":
        """Returns the renderer of an opened model.

        Args:
          source: the model.
          chat_template: a file or a template to use in place of the model's own.
          trust_control_tokens: control tokens in messages count, instead of being plain text.
          cache: the folder where what takes long to derive is kept for the next start.
          formats: names of the output's formats that are not to be chosen by the template.
          mode: the renderer of chats; see `renderers.table`.
          content_format: what the template takes; see `template_wire.Setup`.

        Raises:
          RenderError: there is no tokenizer, it or the template cannot be used, or a format or the
            mode is unknown.
        """
        row = chat_row(source, mode, has_own_template=chat_template is not None)
        if row is not None:
            opened = open_tokenizer(source, cache, row)
            tokenizer = opened.tokenizer
            ends = [i for i in map(tokenizer.added_token_id, row.ends) if i is not None]
            names = _first(formats or FormatNames(), row.formats)
            return cls(
                tokenizer,
                table.load(row, Path(source.path), tokenizer.control_tokens),
                [*opened.eos_token_ids, *ends],
                trust_control_tokens,
                Formats.of("", names, tokenizer.added_token_id, opened.checkpoint),
                opened.special_tokens,
                chat_variables=row.variables,
            )
        sources = template_sources(source, chat_template)
        templates = TemplateProcesses() if sources else None  # starts while the vocabulary is read
        opened = open_tokenizer(source, cache)
        tokenizer = opened.tokenizer
        if templates is not None:
            control = tokenizer.control_tokens
            templates.compile(
                Setup(
                    sources,
                    opened.special_tokens,
                    control,
                    content_format=content_format,
                    media_texts=media_texts(source),
                )
            )
        template = "\n".join(sources.values())
        names = formats or FormatNames()
        if (
            sources
            and names.tools is None
            and not any(map(tool_prompt.knows_tools, sources.values()))
        ):
            names = replace(names, tools=tool_prompt.FORMAT)
        found = Formats.of(template, names, tokenizer.added_token_id, opened.checkpoint)
        return cls(
            tokenizer,
            templates,
            opened.eos_token_ids,
            trust_control_tokens,
            found,
            opened.special_tokens,
            sources.get("default"),
        )

    def close(self) -> None:
        """Ends the processes of chat templates. Idempotent."""
        if self._chats is not None:
            self._chats.close()

    @property
    def has_chat_template(self) -> bool:
        """True if messages can be rendered."""
        return self._chats is not None

    def min_tokens(self, text: str, enough: int) -> int:
        """Returns a number of tokens that `text` has at least, without tokenizing it.

        Args:
          text: any text.
          enough: counting stops at this number.
        """
        return self.tokenizer.min_tokens(text, enough)

    def head(self, text: str, num_tokens: int) -> str:
        """Returns a beginning of `text` that surely has the same first `num_tokens` tokens."""
        return self.tokenizer.head(text, num_tokens)

    def encode(
        self, text: str, add_special_tokens: bool = True, parse_special: bool = False
    ) -> list[int]:
        """Returns the token ids of `text`; see `TextTokenizer.encode`."""
        return self.tokenizer.encode(
            text, add_special_tokens=add_special_tokens, parse_special=parse_special
        )

    def encode_pair(
        self, first: str, second: str | None, limits: TextLimits = NO_LIMITS
    ) -> TextPair:
        """Returns the tokens of one or two texts; see `TextTokenizer.encode_pair`."""
        return self.tokenizer.encode_pair(first, second, limits)

    def decode(self, token_ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        """Returns the text of `token_ids`, exactly what a `detokenizer` emits for them."""
        detokenizer = self.detokenizer((), skip_special_tokens)
        return detokenizer.push(token_ids) + detokenizer.flush()

    def render_chat(
        self,
        messages: Sequence[Message],
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        template_kwargs: Mapping[str, Any] | None = None,
    ) -> ChatPrompt:
        """Returns the prompt of `messages`. Waits for another process: call it in a thread.

        Args:
          messages: each with a role, most with a content: text, or parts of type "text".
          tools: definitions of functions; see `tool_prompt` if the template knows none.
          add_generation_prompt: end with the header of the assistant's message.
          continue_final_message: end within the last message, to have it continued; excludes
            `add_generation_prompt`.
          template_kwargs: further variables of the template; those that it does not read are
            ignored.

        Raises:
          RenderError: the model has no template, or the template refuses the messages, fails, or
            takes too much time or memory.
        """
        if continue_final_message and add_generation_prompt:
            raise RenderError(
                "continue_final_message and add_generation_prompt exclude each other: set"
                " add_generation_prompt to false",
                "continue_final_message",
            )
        if not messages:
            raise RenderError("messages is empty; at least one is needed", "messages")
        if self._chats is None:
            raise RenderError(
                "this model has no chat template: use /v1/completions, or start it with"
                " --chat-template FILE",
                "messages",
            )
        reply = self._chats.render(
            RenderRequest(
                messages=[dict(message) for message in messages],
                tools=[dict(tool) for tool in tools] if tools else None,
                add_generation_prompt=add_generation_prompt,
                continue_final_message=continue_final_message,
                variables=dict(template_kwargs or {}),
                trust_control_tokens=self._trust_control_tokens,
            )
        )
        self._ignored.note(reply.ignored)
        return ChatPrompt(reply.text, reply.has_stand_ins, reply.token_ids)

    def encode_prompt(self, prompt: ChatPrompt, add_special_tokens: bool = False) -> list[int]:
        """Returns the token ids of `prompt`; templates write BOS themselves, so none is added."""
        if prompt.token_ids is not None:
            return list(prompt.token_ids)
        if prompt.has_stand_ins:
            return self.tokenizer.encode_stand_ins(
                prompt.text, add_special_tokens=add_special_tokens
            )
        return self.encode(prompt.text, add_special_tokens, parse_special=True)

    def encode_chat(
        self, messages: Sequence[Message], add_special_tokens: bool = False
    ) -> list[int]:
        """Returns the token ids of `render_chat`."""
        return self.encode_prompt(self.render_chat(messages), add_special_tokens)

    def detokenizer(
        self, prompt_token_ids: Sequence[int] = (), skip_special_tokens: bool = True
    ) -> Detokenizer:
        """Returns a detokenizer for what follows `prompt_token_ids`."""
        return Detokenizer(self.tokenizer.token_bytes, prompt_token_ids, skip_special_tokens)

    def token_bytes(self, token_id: int) -> bytes:
        """Returns the bytes that a token stands for; b"" for an id outside the vocabulary."""
        return self.tokenizer.token_bytes[token_id]

    def token_text(self, token_id: int) -> str:
        """Returns a token as text by itself; bytes that are not UTF-8 show as U+FFFD."""
        return self.token_bytes(token_id).decode("utf-8", "replace")

    def merge_ranks(self) -> dict[int, int]:
        """Returns token id -> rank of the first merge that makes the token; lower applies earlier.

        Slow (it goes through the tokenizer's JSON): for exports.

        Raises:
          RenderError: the tokenizer does not work by merges.
        """
        return self.tokenizer.merge_ranks()


def _markers(tokenizer: TextTokenizer, formats: Formats) -> dict[str, int]:
    """Control tokens, and the markers of formats."""
    ids = {text: tokenizer.added_token_id(text) for text in tokenizer.control_tokens}
    found = {text: token for text, token in ids.items() if token is not None}
    return found | {text: token for token, text in formats.marker_ids.items()}


def _first(given: FormatNames, default: FormatNames) -> FormatNames:
    # Each name that is given, and those of `default` for the others.
    return FormatNames(given.reasoning or default.reasoning, given.tools or default.tools)
