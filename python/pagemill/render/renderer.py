"""Everything between text and token ids for one model.

renderer = Renderer.open(source)
ids = renderer.encode_chat([{"role": "user", "content": "Hi"}])
detokenizer = renderer.detokenizer(ids)
detokenizer.push([...])
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from pagemill.render.chat_template import MAX_TEMPLATE_CHARS, ChatTemplate, Message
from pagemill.render.detokenizer import Detokenizer
from pagemill.render.errors import RenderError
from pagemill.render.json_values import as_array, as_object
from pagemill.render.special_tokens import (
    end_ids,
    read_json,
    tokens_from_config,
    tokens_from_gguf,
)
from pagemill.render.tokenizer import TextTokenizer


class GgufMetadata(Protocol):
    """The part of `weights.GgufFile` that is used here."""

    @property
    def metadata(self) -> Mapping[str, Any]: ...


class RenderSource(Protocol):
    """The part of `weights.ModelSource` that is used here."""

    @property
    def path(self) -> Any: ...  # the directory of an "hf" model

    @property
    def config(self) -> Mapping[str, Any]: ...

    @property
    def gguf(self) -> GgufMetadata | None: ...


class Renderer:
    """A model's tokenizer, chat template and detokenizers. Immutable and thread-safe."""

    def __init__(
        self,
        tokenizer: TextTokenizer,
        templates: Mapping[str, ChatTemplate],
        eos_token_ids: Sequence[int],
    ) -> None:
        """Joins the parts; `open` makes them.

        Args:
          tokenizer: the vocabulary.
          templates: "default" and, where the model has one for tools, "tool_use"; may be empty.
          eos_token_ids: tokens that end a generation.
        """
        self._tokenizer = tokenizer
        self._templates = dict(templates)
        self.eos_token_ids: tuple[int, ...] = tuple(dict.fromkeys(eos_token_ids))
        self.vocab_size: int = tokenizer.vocab_size

    @classmethod
    def open(
        cls, source: RenderSource, chat_template: str | None = None, cache: Path | None = None
    ) -> "Renderer":
        """Returns the renderer of an opened model.

        Args:
          source: the model.
          chat_template: a file or a template to use in place of the model's own.
          cache: the folder where what takes long to derive is kept for the next start.

        Raises:
          RenderError: there is no tokenizer, or it or the template cannot be used.
        """
        if source.gguf is not None:
            metadata = source.gguf.metadata
            tokenizer = TextTokenizer.from_gguf(metadata, cache)
            tokens = tokens_from_gguf(metadata)
            own = {"default": metadata.get("tokenizer.chat_template")}
            ends = [metadata.get(f"tokenizer.ggml.{key}_token_id") for key in ("eos", "eot", "eom")]
        else:
            folder = Path(source.path)
            tokenizer = TextTokenizer.from_file(folder / "tokenizer.json")
            config = read_json(folder / "tokenizer_config.json")
            tokens = tokens_from_config(config)
            own = _templates_of(folder, config)
            generation = read_json(folder / "generation_config.json")
            ends = [generation.get("eos_token_id"), _id_of(tokenizer, tokens.get("eos_token"))]
        if chat_template is not None:
            own = {"default": read_template(chat_template)}
        ends.append(source.config.get("eos_token_id"))
        templates = {
            name: ChatTemplate(text, tokens) for name, text in own.items() if isinstance(text, str)
        }
        ids = [index for value in ends for index in end_ids(value)]
        return cls(tokenizer, templates, ids)

    @property
    def has_chat_template(self) -> bool:
        """Can messages be rendered?"""
        return "default" in self._templates

    def encode(
        self, text: str, add_special_tokens: bool = True, parse_special: bool = False
    ) -> list[int]:
        """Returns the token ids of `text`; see `TextTokenizer.encode`."""
        return self._tokenizer.encode(
            text, add_special_tokens=add_special_tokens, parse_special=parse_special
        )

    def decode(self, token_ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        """Returns the text of `token_ids`, exactly what a `detokenizer` emits for them."""
        detokenizer = self.detokenizer((), skip_special_tokens)
        return detokenizer.push(token_ids) + detokenizer.flush()

    def apply_chat_template(
        self,
        messages: Sequence[Message],
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        template_kwargs: Mapping[str, Any] | None = None,
    ) -> str:
        """Returns the prompt text of `messages`.

        Args:
          messages: each with a role, most with a content: text, or parts of type "text".
          tools: definitions of functions, where the template knows tools.
          add_generation_prompt: end where the assistant begins to speak.
          continue_final_message: end within the last message, to have it continued; excludes
            `add_generation_prompt`.
          template_kwargs: further variables of the template.

        Raises:
          RenderError: the model has no template, or the template refuses the messages.
        """
        if continue_final_message and add_generation_prompt:
            raise RenderError(
                "continue_final_message and add_generation_prompt exclude each other: set"
                " add_generation_prompt to false",
                "continue_final_message",
            )
        for index, message in enumerate(messages):
            if not isinstance(message.get("role"), str):
                raise RenderError(f"message {index} has no role", "messages")
        if not messages:
            raise RenderError("messages is empty; at least one is needed", "messages")
        template = self._template(bool(tools))
        prompt = template.render(messages, tools, add_generation_prompt, template_kwargs or {})
        return _cut_to_continue(prompt, messages[-1]) if continue_final_message else prompt

    def encode_chat(
        self,
        messages: Sequence[Message],
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        template_kwargs: Mapping[str, Any] | None = None,
    ) -> list[int]:
        """Returns the token ids of `apply_chat_template`; control tokens in it are parsed.

        Templates write BOS themselves, so none is added.
        """
        prompt = self.apply_chat_template(
            messages, tools, add_generation_prompt, continue_final_message, template_kwargs
        )
        return self.encode(prompt, add_special_tokens=False, parse_special=True)

    def detokenizer(
        self, prompt_token_ids: Sequence[int] = (), skip_special_tokens: bool = True
    ) -> Detokenizer:
        """Returns a detokenizer for what follows `prompt_token_ids`."""
        return Detokenizer(self._tokenizer.token_bytes, prompt_token_ids, skip_special_tokens)

    def token_bytes(self, token_id: int) -> bytes:
        """Returns the bytes that a token stands for; b"" for an id outside the vocabulary."""
        return self._tokenizer.token_bytes[token_id]

    def token_text(self, token_id: int) -> str:
        """Returns a token as text by itself; bytes that are no characters show as U+FFFD."""
        return self.token_bytes(token_id).decode("utf-8", "replace")

    def merge_ranks(self) -> dict[int, int]:
        """Returns token id -> rank of the first merge that makes the token; lower applies earlier.

        Slow (it goes through the tokenizer's JSON): for exports.

        Raises:
          RenderError: the tokenizer does not work by merges.
        """
        return self._tokenizer.merge_ranks()

    def _template(self, with_tools: bool) -> ChatTemplate:
        name = "tool_use" if with_tools and "tool_use" in self._templates else "default"
        template = self._templates.get(name)
        if template is None:
            raise RenderError(
                "this model has no chat template: use /v1/completions, or start it with"
                " --chat-template FILE",
                "messages",
            )
        return template


def read_template(text_or_path: str) -> str:
    """Returns a template given as itself or as the path of a file.

    Raises:
      RenderError: it is neither.
    """
    if any(mark in text_or_path for mark in ("{{", "{%", "\n")):
        return text_or_path
    path = Path(text_or_path).expanduser()
    try:
        if path.stat().st_size > 4 * MAX_TEMPLATE_CHARS:  # UTF-8 has at most 4 bytes a character
            raise RenderError(f"the chat template {path} is too large")
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        if isinstance(error, RenderError):
            raise
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise RenderError(f"the chat template {text_or_path!r} cannot be read: {reason}") from None


def _templates_of(folder: Path, config: Mapping[str, Any]) -> dict[str, Any]:
    file = folder / "chat_template.jinja"
    if file.is_file():
        return {"default": read_template(str(file))}
    value = config.get("chat_template")
    several = as_array(value)
    if several is None:
        return {"default": value}
    entries = [entry for entry in map(as_object, several) if entry is not None]
    return {
        entry["name"]: entry["template"] for entry in entries if {"name", "template"} <= set(entry)
    }


def _id_of(tokenizer: TextTokenizer, content: str | None) -> int | None:
    return None if content is None else tokenizer.token_id(content)


def _cut_to_continue(prompt: str, last: Message) -> str:
    content = last.get("content")
    if (parts := as_array(content)) is not None:
        texts = [part.get("text") for part in map(as_object, parts) if part is not None]
        content = texts[-1] if texts else None
    if not isinstance(content, str) or not content.strip():
        raise RenderError("the last message has no text to continue", "continue_final_message")
    at = prompt.rfind(content.strip())
    if at < 0:
        raise RenderError(
            "the chat template changes the last message, so it cannot be continued",
            "continue_final_message",
        )
    # Templates that trim contents trim its end too; others keep it, and so does the prompt.
    kept = content.lstrip()
    length = len(kept) if prompt.startswith(kept, at) else len(content.strip())
    return prompt[: at + length]
