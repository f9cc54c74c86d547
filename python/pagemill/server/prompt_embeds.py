"""`prompt_embeds` of a request: base64 of tensors, checked against the model before their numbers
are read."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence

from pagemill.inputs.prompt_embeds import check_shape, embeds_prompt
from pagemill.inputs.rendered_prompt import RenderedPrompt
from pagemill.server.errors import ApiError, bad_request
from pagemill.weights.errors import WeightsError
from pagemill.weights.sent_tensor import SentTensor

PARAM = "prompt_embeds"


def decoded_embeds(sent: Sequence[str], width: int, max_model_len: int) -> list[RenderedPrompt]:
    """A prompt for each tensor [tokens, width], as safetensors or torch.save wrote it.

    Raises:
        ApiError: 400: one is no such tensor, or has more rows than `max_model_len`.
    """
    return [
        _decoded(text, f"`{PARAM}[{at}]`", width, max_model_len) for at, text in enumerate(sent)
    ]


def _decoded(text: str, name: str, width: int, max_model_len: int) -> RenderedPrompt:
    try:
        tensor = SentTensor.read(base64.b64decode(text, validate=True))
        check_shape(tensor.shape, width)
        if tensor.shape[0] > max_model_len:
            raise ValueError(
                f"are {tensor.shape[0]} rows; this model's maximum context length is"
                f" {max_model_len} tokens"
            )
        return embeds_prompt(tensor.as_f32(), width)
    except binascii.Error as error:
        raise _refusal(f"{name} is not base64: {error}") from error
    except WeightsError as error:
        raise _refusal(f"{name} cannot be read: {error}") from error
    except ValueError as error:
        raise _refusal(f"{name} {error}") from error


def _refusal(message: str) -> ApiError:
    return bad_request(f"{message}.", PARAM)
