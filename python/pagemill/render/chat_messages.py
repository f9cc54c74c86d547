"""Messages as chat templates expect them."""

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any, get_args

from pagemill.inputs.media_kind import MediaKind
from pagemill.render.errors import RenderError
from pagemill.render.json_values import as_array, as_object

Message = Mapping[str, Any]

# Content parts of text, and the field that holds it.
TEXT_PARTS: Mapping[str, str] = {
    "text": "text",
    "input_text": "text",
    "output_text": "text",
    "refusal": "refusal",
}


MEDIA_MARKS: Mapping[str, str] = {
    "audio": "\U000ffff0",
    "image": "\U000ffff1",
    "video": "\U000ffff2",
}
"""Characters that stand for media in contents that are texts, until a template has written them.
One that a user wrote becomes a placeholder for which there is no item, and is refused."""


def prepared(
    message: Message,
    *,
    takes_parts: bool,
    takes_null: bool,
    marks: Collection[str] = (),
) -> dict[str, Any]:
    """Returns `message` in the form that templates are written for.

    Fields that are null are left out, as clients add them when they send an answer back. A null or
    missing content is "" unless the template compares contents with none.

    Args:
      message: as a client sends it.
      takes_parts: the template loops over content parts; otherwise they are joined.
      takes_null: the template compares contents with none.
      marks: those of `MEDIA_MARKS` that may stand for media in a text.

    Raises:
      RenderError: a content part is neither text nor media, or the template takes no parts and
        nothing stands for media of this kind.
    """
    fields = {key: value for key, value in message.items() if value is not None}
    parts = as_array(fields.get("content"))
    if parts is not None:
        fields["content"] = (
            [_template_part(part) for part in parts]
            if takes_parts
            else "\n".join(_marked_texts(parts, marks))
        )
    elif "content" not in fields:
        fields["content"] = None if takes_null else ""
    reasoning = fields.get("reasoning", fields.get("reasoning_content"))
    if isinstance(reasoning, str):  # templates know it by the one name or the other
        fields |= {"reasoning": reasoning, "reasoning_content": reasoning}
    calls = as_array(fields.get("tool_calls"))
    if calls is not None:
        fields["tool_calls"] = [_with_parsed_arguments(call) for call in calls]
    return fields


def _marked_texts(parts: Sequence[Any], marks: Collection[str]) -> list[str]:
    # The texts of parts, with a mark in place of each image and the like.
    texts: list[str] = []
    for part in parts:
        mark = MEDIA_MARKS.get(str((as_object(part) or {}).get("type")))
        texts += part_texts([part]) if mark is None or mark not in marks else [mark]
    return texts


def _template_part(part: Any) -> dict[str, str]:
    # Images are {"type": "image"}: what they show does not matter to a template. Audio is alike.
    kind: Any = (as_object(part) or {}).get("type")
    if kind in get_args(MediaKind):
        return {"type": kind}
    (text,) = part_texts([part])
    return {"type": "text", "text": text}


def part_texts(parts: Sequence[Any]) -> list[str]:
    """Returns the texts of content parts.

    Raises:
      RenderError: a part is not text.
    """
    texts: list[str] = []
    for part in parts:
        fields = as_object(part)
        text = part
        kind = type(part).__name__
        if fields is not None:
            kind = str(fields.get("type"))
            text = fields.get(TEXT_PARTS.get(kind, ""))
        if not isinstance(text, str):
            raise RenderError(
                f"a content part of type {kind!r} cannot be given to this model; it takes text",
                "messages",
            )
        texts.append(text)
    return texts


def cut_to_continue(prompt: str, content: Any) -> str:
    """Returns `prompt` up to the end of `content`, the last message's, to have it continued.

    Raises:
      RenderError: the message has no text, or the prompt does not hold it.
    """
    if (parts := as_array(content)) is not None:
        content = parts[-1].get("text") if parts else None
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


def _with_parsed_arguments(call: Any) -> Any:
    # Clients send arguments as JSON text; templates print them as JSON again.
    fields = as_object(call)
    function = as_object(fields.get("function")) if fields is not None else None
    if fields is None or function is None or not isinstance(function.get("arguments"), str):
        return call
    try:
        parsed = json.loads(function["arguments"])
    except (ValueError, RecursionError):
        return call  # a model's own malformed call, replayed: the template gets the text
    return {**fields, "function": {**function, "arguments": parsed}}
