"""Prompts of an `LLM` as its engine takes them.

prompts = OfflinePrompts(renderer, media, core.built, source)
prompts.place(["Dogs are", "Cats are"])
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from pagemill.engine.encoded_media import placed_alone
from pagemill.engine.limits import encoder_prompt, text_prompt
from pagemill.engine.media import MediaFrontEnd, media_param, place_media
from pagemill.engine.offline_media import MediaSource, OfflineMedia
from pagemill.engine.outputs import EngineError
from pagemill.inputs.media_kind import MediaKind
from pagemill.inputs.prepared_media import PreparedMedia
from pagemill.inputs.prompt_embeds import embeds_prompt
from pagemill.inputs.rendered_prompt import RenderedPrompt
from pagemill.inputs.scoring import ends_texts
from pagemill.render.errors import RenderError
from pagemill.render.media.media_files import wants_sound
from pagemill.render.token_id_renderer import AnyRenderer
from pagemill.runner.build import BuiltModel
from pagemill.weights.source import ModelSource

Message = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ChatForm:
    """What a chat template writes beside messages; see `Renderer.render_chat`."""

    tools: Sequence[Mapping[str, Any]] | None = None
    add_generation_prompt: bool = True
    continue_final_message: bool = False
    template_kwargs: Mapping[str, Any] | None = None


Text = str | Sequence[int]
"""A text, or token ids."""
Prompt = Text | Mapping[str, Any]
"""A text, token ids, either as `{"prompt": text}` or `{"prompt_token_ids": ids}`,
`{"prompt_embeds": rows}`, float32 [tokens, hidden size], for a model that was opened with
enable_prompt_embeds, or `{"encoder_prompt": text, "decoder_prompt": text}`, also token
ids, for an encoder-decoder of text; without the second, or None, its decoder begins as the model's
configuration says."""


PoolingInput = Text | Mapping[str, Any]
"""Of a model that pools: a text, token ids, or `{"content": parts}`, a user's message, which the
chat template writes."""
PromptMedia = Mapping[MediaKind, Sequence[Sequence[MediaSource]] | None]
"""The media of each prompt, by kind; None: there are none of a kind."""


_PLAIN_CHAT = ChatForm()


class OfflinePrompts:
    """Tokenizes, applies the chat template, and places media."""

    def __init__(
        self, renderer: AnyRenderer, media: OfflineMedia, built: BuiltModel, source: ModelSource
    ) -> None:
        self._renderer = renderer
        self._media = media
        self._front_ends = MediaFrontEnd.of_built(built, source)
        self._embeds_width = built.embeds_width
        self._encoder_text = built.encoder_text

    def place(
        self,
        prompts: Prompt | Sequence[Prompt],
        media: PromptMedia | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> list[RenderedPrompt]:
        """The prompts, with those of `media` in them, by `settings` (`mm_processor_kwargs` of
        `LLM.generate`).

        Raises:
            EngineError: settings are not known, media do not fit the prompts or the model, or
                embeddings are not of its width.
        """
        sound = self._wants_sound(settings)
        listed = _as_list(prompts)
        rendered = [
            self._prompt(prompt, "prompts" if listed is not prompts else f"prompts[{at}]")
            for at, prompt in enumerate(listed)
        ]
        prepared: list[list[PreparedMedia]] = [[] for _ in rendered]
        for kind, sources in (media or {}).items():
            if sources is None:
                continue
            if len(sources) != len(rendered):
                named = media_param(kind)
                message = (
                    f"there are {named} of {len(sources)} prompts, but {len(rendered)} prompts"
                )
                raise EngineError("INVALID_ARGUMENT", message, named)
            for own, added in zip(prepared, sources, strict=True):
                own += self._media.all_prepared(kind, added, sound=sound)
        return [
            place_media(prompt, own, self._front_ends, self._control_text)
            for prompt, own in zip(rendered, prepared, strict=True)
        ]

    def conversation(
        self,
        messages: Sequence[Message],
        add_special_tokens: bool = False,
        settings: Mapping[str, Any] | None = None,
        form: ChatForm = _PLAIN_CHAT,
    ) -> RenderedPrompt:
        """A conversation by the chat template, with the media of its messages; perhaps with the
        special tokens of texts. `settings` are those of `place`.

        Raises:
            RenderError: the model has no chat template, or it refuses the messages.
            EngineError: `messages` is not a list of messages, media do not fit them or the model,
                or settings are not known.
        """
        if not all(isinstance(message, Mapping) for message in messages):  # pyright: ignore[reportUnnecessaryIsInstance]
            what = '`messages` is a list of {"role": ..., "content": ...}, or a list of such lists'
            raise EngineError("INVALID_ARGUMENT", what, "messages")
        messages, media = self._media.of_messages(messages, sound=self._wants_sound(settings))
        written = self._renderer.render_chat(
            messages,
            form.tools,
            form.add_generation_prompt,
            form.continue_final_message,
            form.template_kwargs,
        )
        token_ids = self._renderer.encode_prompt(written, add_special_tokens)
        prompt = text_prompt(token_ids, "messages")
        return place_media(prompt, media, self._front_ends, self._control_text)

    def placed_alone(
        self, kind: MediaKind, media: Sequence[MediaSource]
    ) -> Iterator[tuple[PreparedMedia, RenderedPrompt]]:
        """Each image or audio as it is prepared, and as a prompt without any text.

        Raises:
            EngineError: one cannot be read, or does not fit the model.
        """
        for at, each in enumerate(media):
            prepared = self._media.prepared(kind, each, f"{kind} {at}")
            yield prepared, placed_alone(prepared, self._front_ends, self._control_text)

    def to_pool(
        self, inputs: PoolingInput | Sequence[PoolingInput], media: PromptMedia | None = None
    ) -> list[RenderedPrompt]:
        """Inputs of a model that pools. With `media`, texts have a placeholder for each, and their
        control tokens count.

        Raises:
            RenderError: the chat template refuses a content, or there is none.
            EngineError: a token id does not fit 32 bits, or media do not fit.
        """
        listed = _as_list(inputs)
        if any(sources is not None for sources in (media or {}).values()):
            return self.place(listed, media)
        return [self._to_pool(each) for each in listed]

    def message(self, role: str, content: Any) -> RenderedPrompt:
        """A chat of one message, as models that embed read it.

        Raises:
            RenderError, EngineError: see `conversation`.
        """
        adds_special = ends_texts(self._renderer.encode)
        return self.conversation([{"role": role, "content": content}], adds_special)

    def _to_pool(self, given: PoolingInput) -> RenderedPrompt:
        if isinstance(given, Mapping):
            return self.message("user", content_of(given, "texts"))
        ids = self._renderer.encode(given) if isinstance(given, str) else _token_ids(given, "texts")
        return text_prompt(ids, "texts")

    def _prompt(self, prompt: Prompt, which: str) -> RenderedPrompt:
        decoder: list[int] = []
        if isinstance(prompt, Mapping) and len(prompt) == 1:
            prompt = prompt.get("prompt", prompt.get("prompt_token_ids", prompt))
        if isinstance(prompt, Mapping):
            if "encoder_prompt" not in prompt:
                return self._embeds_prompt(prompt)
            prompt, decoder = self._divided(prompt)
        if isinstance(prompt, str):
            prompt = self._renderer.encode(prompt, parse_special=True)
        else:
            prompt = _token_ids(prompt, which)
        rendered = text_prompt(prompt, "prompts")
        if self._encoder_text is None:
            return rendered
        return encoder_prompt(self._encoder_text, rendered, decoder, "prompts")

    def _divided(self, prompt: Mapping[str, Any]) -> tuple[Text, list[int]]:
        """What the encoder reads, and what the decoder begins with."""
        if self._encoder_text is None:
            message = "this model has no encoder of text: give its prompt alone"
            raise EngineError("INVALID_ARGUMENT", message, "prompts")
        if not prompt.keys() <= {"encoder_prompt", "decoder_prompt"}:
            message = 'a prompt has "encoder_prompt" and "decoder_prompt", and nothing else'
            raise EngineError("INVALID_ARGUMENT", message, "prompts")
        decoder = prompt.get("decoder_prompt") or ()
        if isinstance(decoder, str):
            decoder = self._renderer.encode(decoder, add_special_tokens=False, parse_special=True)
        return prompt["encoder_prompt"], list(decoder)

    def _embeds_prompt(self, prompt: Mapping[str, Any]) -> RenderedPrompt:
        if set(prompt) != {"prompt_embeds"}:
            message = (
                'a prompt is a text, token ids, or {"prompt_embeds": rows}; media are arguments:'
                " images, audios and videos"
            )
            raise EngineError("INVALID_ARGUMENT", message, "prompts")
        width = self._embeds_width
        if not width:
            message = "open the model with enable_prompt_embeds=True"
            raise EngineError("FAILED_PRECONDITION", message, "prompts")
        try:
            return embeds_prompt(np.asarray(prompt["prompt_embeds"], np.float32, order="C"), width)
        except (TypeError, ValueError, RuntimeError) as error:  # the last is of torch
            message = f"prompt_embeds {error}"
            raise EngineError("INVALID_ARGUMENT", message, "prompts") from error

    def _wants_sound(self, settings: Mapping[str, Any] | None) -> bool:
        try:
            wanted = wants_sound(settings or {})
            if wanted and not any(each.traits.video_sound for each in self._front_ends):
                raise RenderError(
                    "this model does not hear the sound of videos: leave out use_audio_in_video"
                )
        except RenderError as error:
            raise EngineError("INVALID_ARGUMENT", error.message, "mm_processor_kwargs") from error
        return wanted

    def _control_text(self, text: str) -> list[int]:
        """The token ids of a text that the model has beside media."""
        if not self._renderer.has_text:
            message = (
                f"media of this model need the tokens of {text!r}, and no tokenizer is loaded:"
                " leave out skip_tokenizer_init"
            )
            raise EngineError("INVALID_ARGUMENT", message, "images")
        return self._renderer.encode(text, add_special_tokens=False, parse_special=True)


def content_of(given: Mapping[str, Any], argument: str) -> list[Any]:
    """The parts of `{"content": parts}`, which an argument has.

    Raises:
        EngineError: INVALID_ARGUMENT: it is anything else.
    """
    content = given.get("content")
    if set(given) != {"content"} or not isinstance(content, list):
        raise EngineError("INVALID_ARGUMENT", 'an object must be {"content": parts}', argument)
    return cast("list[Any]", content)


def _as_list(prompts: Any) -> Sequence[Prompt]:
    if not isinstance(prompts, Sized) or isinstance(prompts, bytes):
        what = f"prompts are texts or lists of token ids, not {type(prompts).__name__}"
        raise EngineError("INVALID_ARGUMENT", what, "prompts")
    listed = cast(Sequence[Prompt], prompts)
    if isinstance(prompts, str | Mapping) or (len(listed) > 0 and _is_token_id(listed[0])):
        return [cast(Prompt, prompts)]
    return listed


def _token_ids(prompt: Any, which: str) -> Sequence[int]:
    """`prompt`, which is to be token ids.

    Raises:
        EngineError: INVALID_ARGUMENT: it is something else; `which` prompt that is.
    """
    if not isinstance(prompt, Sized) or isinstance(prompt, bytes):
        what = f"`{which}` is {type(prompt).__name__}; a prompt is a text or a list of token ids"
        raise EngineError("INVALID_ARGUMENT", what, which.partition("[")[0])
    token_ids = cast(Sequence[int], prompt)
    for token_id in token_ids:
        if not _is_token_id(token_id):
            kind = type(token_id).__name__
            what = f"`{which}` holds {kind}; a prompt is a text or a list of token ids"
            raise EngineError("INVALID_ARGUMENT", what, which.partition("[")[0])
    return token_ids


def _is_token_id(value: object) -> bool:
    return isinstance(value, int | np.integer)
