"""What prompts of an encoder-decoder begin with: the item that its encoder reads.

front = MediaFront(1500, "audio")
front.check(request)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from pagemill.engine.messages import EngineRequest
from pagemill.engine.outputs import EngineError
from pagemill.inputs.encoder_text import EncoderText
from pagemill.inputs.media_kind import MediaKind
from pagemill.inputs.rendered_prompt import InputChunk

_NO_LOGPROBS = -1  # step::SamplingParams::kNoLogprobs


class Front(Protocol):
    """Compares requests and chunks of input with the model.

    Raises:
        EngineError: INVALID_ARGUMENT says what a prompt has to be.
    """

    def check(self, request: EngineRequest) -> None: ...

    def check_chunk(self, chunk: InputChunk) -> None: ...


@dataclass(frozen=True, slots=True)
class MediaFront:
    """A recording or an image of `tokens` tokens; None: of any number."""

    tokens: int | None
    kind: MediaKind

    def check(self, request: EngineRequest) -> None:
        prompt, item = request.prompt, self._item
        if len(prompt.media) != 1:
            raise self._refusal(f"has one {item}, this one has {len(prompt.media)}")
        first, tokens = prompt.media[0].first_token, prompt.media[0].features.tokens
        if first != 0 or self.tokens not in (None, tokens):
            count = "" if self.tokens is None else f", of {self.tokens} tokens"
            raise self._refusal(
                f"begins with its {item}{count}; that of this one has {tokens} and begins at token"
                f" {first}"
            )
        if len(prompt) <= tokens:
            raise self._refusal(f"has tokens behind its {item}")

    def check_chunk(self, chunk: InputChunk) -> None:
        if chunk.prompt.media:
            raise self._refusal(f"has its {self._item} in front, and no other one")

    @property
    def _item(self) -> str:
        return "recording" if self.kind == "audio" else self.kind

    def _refusal(self, what: str) -> EngineError:
        route = ": send audio to /v1/audio/transcriptions" if self.kind == "audio" else ""
        return _refusal(f"a prompt of this model {what}{route}")


@dataclass(frozen=True, slots=True)
class TextFront:
    """A text, behind which are the first tokens of the decoder, whose positions are limited."""

    text: EncoderText

    def check(self, request: EngineRequest) -> None:
        prompt = request.prompt
        if len(prompt.media) != 1 or prompt.media[0].first_token != 0:
            raise _refusal("a prompt of this model is the text of its encoder, and no media")
        if request.streaming_input:
            raise _refusal("this model takes the input of a request as a whole, not in parts")
        tokens = len(prompt) - prompt.media[0].features.tokens
        most = self.text.decoder_tokens
        for choice in request.choices:
            sampling = choice.sampling or {}
            if sampling.get("prompt_logprobs", _NO_LOGPROBS) != _NO_LOGPROBS:
                raise _refusal("this model has no log probabilities of prompts: leave them out")
            wanted = int(sampling.get("max_tokens", 1))
            if not 0 < tokens <= most - wanted:
                raise _refusal(
                    f"the decoder of this model has 1 to {most} tokens, but {tokens} of the prompt"
                    f" and {wanted} that may be generated are requested"
                )

    def check_chunk(self, chunk: InputChunk) -> None:
        del chunk
        raise _refusal("this model takes the input of a request as a whole, not in parts")


def _refusal(message: str) -> EngineError:
    return EngineError("INVALID_ARGUMENT", f"{message[0].upper()}{message[1:]}.", "prompt")
