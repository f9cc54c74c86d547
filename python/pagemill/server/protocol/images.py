"""Images in messages of a chat: parts of type `image_url`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, cast

from pagemill.server.errors import bad_request

MAX_UUID_CHARS = 256


class SentImage(NamedTuple):
    """An image of a request: where its part is, the URL that it has, and the name by which the
    client means it; only one of both may be empty."""

    where: str
    url: str
    uuid: str = ""


def image_parts(messages: Sequence[Mapping[str, Any]]) -> list[SentImage]:
    """The images of checked messages, in their order."""
    found: list[SentImage] = []
    for at, message in enumerate(messages):
        content = message.get("content")
        parts = cast(list[Any], content) if isinstance(content, list) else []
        for number, part in enumerate(parts):
            if _is_image(part):
                where = f"messages[{at}].content[{number}]"
                url, uuid = image_url(part.get("image_url")), part.get("uuid")
                found.append(SentImage(where, url or "", uuid or ""))
    return found


def without_urls(messages: Sequence[dict[str, Any]]) -> Sequence[dict[str, Any]]:
    """The messages with `{"type": "image"}`, which templates read, in place of each image."""

    def bare(message: dict[str, Any]) -> dict[str, Any]:
        content = message.get("content")
        if not isinstance(content, list):
            return message
        parts = cast(list[Any], content)
        bare_parts = [{"type": "image"} if _is_image(part) else part for part in parts]
        return {**message, "content": bare_parts}

    return [bare(message) for message in messages]


def image_url(value: Any) -> str | None:
    """The URL of a part's field `image_url`, an object or the URL itself; None if it has none."""
    url = cast(dict[str, Any], value).get("url") if isinstance(value, dict) else value
    return url if isinstance(url, str) and url else None


def check_uuid(part: Mapping[str, Any], where: str, param: str) -> bool:
    """Whether the part of an image names it.

    Raises:
        ApiError: 400: the name is none.
    """
    uuid = part.get("uuid")
    if uuid is None:
        return False
    if not isinstance(uuid, str) or not 0 < len(uuid) <= MAX_UUID_CHARS:
        raise bad_request(
            f"`{where}.uuid` must be a string of 1 to {MAX_UUID_CHARS} characters.", param
        )
    return True


def has_no_url(value: Any) -> bool:
    """Whether a part's field `image_url` is left out, for an image that the server has."""
    return value is None or value == {} or value == {"url": None}


def _is_image(part: Any) -> bool:
    return isinstance(part, dict) and cast(dict[str, Any], part).get("type") == "image_url"
