"""Settings of a session and of its responses, as a request of the Responses API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pagemill.config.sampling import MODEL_FIELDS
from pagemill.server.errors import ApiError, bad_request
from pagemill.server.protocol.decode import decode_fields
from pagemill.server.protocol.responses import RULES, ResponsesRequest
from pagemill.server.responses.input import Item

MODALITIES = ["text"]
# What a session or a response may set; what else OpenAI has is about sound.
_FIELDS = frozenset(
    {
        *("instructions", "tools", "tool_choice", "max_output_tokens", "parallel_tool_calls"),
        *MODEL_FIELDS,
        *("seed", "stop", "presence_penalty", "frequency_penalty", "reasoning", "text"),
        "chat_template_kwargs",
        *("metadata", "truncation", "priority", "timeout", "cache_salt"),
    }
)


def changed(settings: Mapping[str, Any], sent: Mapping[str, Any]) -> dict[str, Any]:
    """`settings` with those that were `sent`; null sets the default.

    Raises:
        ApiError: 400 for other modalities than text.
    """
    modalities = sent.get("output_modalities", sent.get("modalities"))
    if modalities is not None and modalities != MODALITIES:
        raise bad_request('`output_modalities` must be `["text"]`.', "output_modalities")
    named = {**settings, **{name: sent[name] for name in _FIELDS & sent.keys()}}
    if named.get("max_output_tokens") == "inf":
        named["max_output_tokens"] = None
    return {name: value for name, value in named.items() if value is not None}


def request_of(settings: Mapping[str, Any], items: list[Item]) -> ResponsesRequest:
    """The request with these settings and items.

    Raises:
        ApiError: 400 that names the setting.
    """
    if "truncation" in settings and not isinstance(settings["truncation"], str):
        raise ApiError(400, '`truncation` must be "auto" or "disabled".', "truncation")
    return decode_fields({**settings, "input": items}, ResponsesRequest, RULES)
