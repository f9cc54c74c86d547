"""What crosses between this process and one that renders chat templates, as MessagePack."""

from collections.abc import Mapping
from typing import Any

import msgspec

MAX_TEMPLATE_CHARS = 2**18


class Setup(msgspec.Struct, array_like=True):
    """The first message.

    `templates` are "default" and perhaps "tool_use"; `variables` are such as `bos_token`;
    `control_tokens` are the vocabulary's.
    """

    templates: dict[str, str]
    variables: dict[str, str]
    control_tokens: list[str]
    max_cpu_s: float = 2.0
    """Processor time for one message, this one included."""
    max_extra_bytes: int = 512 * 2**20
    """Memory beyond what the process has when it starts."""
    content_format: str = "auto"
    """"string": contents are texts; "openai": lists of parts; "auto": what the template reads."""
    media_texts: dict[str, str] = {}
    """What stands for an item of a kind of media in contents that are texts."""


class RenderRequest(msgspec.Struct, array_like=True, kw_only=True):
    """Each further message: what `Renderer.render_chat` takes."""

    messages: list[Mapping[str, Any]]
    tools: list[Mapping[str, Any]] | None
    add_generation_prompt: bool
    continue_final_message: bool
    variables: Mapping[str, Any]
    trust_control_tokens: bool


class RenderReply(msgspec.Struct, array_like=True):
    """The answer to each message: a prompt, or the error that says why there is none.

    `has_stand_ins`: control tokens of the template are written as `ControlText.stand_in`s, and
    every other character of `text` is plain text. `ignored`: variables of the request that nothing
    reads.
    """

    text: str = ""
    has_stand_ins: bool = False
    error: str | None = None
    param: str | None = None
    ignored: list[str] = []
    token_ids: list[int] | None = None
    """The prompt, if its renderer makes tokens; `text` then only shows them."""
