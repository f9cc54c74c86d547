"""`prompt_embeds` of a request: base64 of tensors, checked against the model before their numbers
are read."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from typing import NamedTuple

from pagemill.inputs.prompt_embeds import check_shape, embeds_prompt
from pagemill.inputs.rendered_prompt import RenderedPrompt
from pagemill.server.errors import ApiError, bad_request
from pagemill.server.media import MAX_PREPARED_BYTES
from pagemill.weights.errors import WeightsError
from pagemill.weights.sent_tensor import SentTensor

PARAM = "prompt_embeds"


def decoded_embeds(sent: Sequence[str], width: int, max_model_len: int) -> list[RenderedPrompt]:
    """A prompt for each tensor [tokens, width], as safetensors or torch.save wrote it.

    Raises:
        ApiError: 400: one is no such tensor, or has more rows than `max_model_len`, or all
            together are too large.
    """
    prompts: list[RenderedPrompt] = []
    most = MAX_PREPARED_BYTES // (4 * width)
    for at, text in enumerate(sent):
        room = _Room(max_model_len, most - sum(map(len, prompts)), most)
        prompts.append(_decoded(text, f"`{PARAM}[{at}]`", width, room))
    return prompts


class _Room(NamedTuple):
    """How many rows a tensor may have: `longest` of any, and `left` of the `most` that a request
    may have."""

    longest: int
    left: int
    most: int

    def check(self, count: int) -> None:
        """Raises ValueError for more than that."""
        if count > self.longest:
            raise ValueError(
                f"are {count} rows; this model's maximum context length is {self.longest} tokens"
            )
        if count > self.left:
            raise ValueError(
                f"and those before are more than {self.most} rows, which have"
                f" {MAX_PREPARED_BYTES} bytes in f32; send fewer at a time"
            )


def _decoded(text: str, name: str, width: int, room: _Room) -> RenderedPrompt:
    try:
        tensor = SentTensor.read(base64.b64decode(text, validate=True))
        check_shape(tensor.shape, width)
        room.check(tensor.shape[0])
        return embeds_prompt(tensor.as_f32(), width)
    except binascii.Error as error:
        raise _refusal(f"{name} is not base64: {error}") from error
    except WeightsError as error:
        raise _refusal(f"{name} cannot be read: {error}") from error
    except ValueError as error:
        raise _refusal(f"{name} {error}") from error


def _refusal(message: str) -> ApiError:
    return bad_request(f"{message}.", PARAM)
