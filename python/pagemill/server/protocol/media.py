"""Media in messages of a chat: parts of type `image_url`, `audio_url`, `input_audio` and
`video_url`, and `image_embeds` and `audio_embeds`, which have embeddings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, cast

from pagemill.inputs.media_embeds import EMBEDS_PARTS, GRID, unknown_fields
from pagemill.inputs.media_kind import MediaKind
from pagemill.render.media.data_url import audio_url, has_audio
from pagemill.server.errors import bad_request

MAX_UUID_CHARS = 256
MEDIA_PARTS: Mapping[str, MediaKind] = {
    **EMBEDS_PARTS,
    "audio_url": "audio",
    "image_url": "image",
    "input_audio": "audio",
    "video_url": "video",
}
"""Types of parts, which have a field of the same name, and what is there: a URL, the file, or
embeddings."""
_FILE_PART = "input_audio"


class SentMedia(NamedTuple):
    """An image, audio or a video of a request: where its part is, the URL that it has, and the name
    by which the client means it; only one of both may be empty. `sound`: that of a video is heard.
    `embeds`: its embeddings, base64 and what belongs to them, in place of a URL and a name.
    """

    kind: MediaKind
    where: str
    url: str
    uuid: str = ""
    sound: bool = False
    embeds: Mapping[str, Any] | None = None


def media_parts(
    messages: Sequence[Mapping[str, Any]], *, video_sound: bool = False
) -> list[SentMedia]:
    """The media of checked messages, in their order; videos perhaps with their sound."""
    found: list[SentMedia] = []
    for at, message in enumerate(messages):
        content = message.get("content")
        parts = cast(list[Any], content) if isinstance(content, list) else []
        for number, part in enumerate(parts):
            kind = media_kind(part)
            if kind is not None:
                where = f"messages[{at}].content[{number}]"
                sound = video_sound and kind == "video"
                uuid = part.get("uuid") or ""
                embeds = _embeds_of(part)
                found.append(SentMedia(kind, where, _url_of(part), uuid, sound, embeds))
    return found


def without_urls(messages: Sequence[dict[str, Any]]) -> Sequence[dict[str, Any]]:
    """The messages with `{"type": "image"}` in place of each image, as templates read them, and the
    like for other kinds."""

    def bare(part: Any) -> Any:
        kind = media_kind(part)
        return part if kind is None else {"type": kind}

    def bare_message(message: dict[str, Any]) -> dict[str, Any]:
        content = message.get("content")
        if not isinstance(content, list):
            return message
        return {**message, "content": [bare(part) for part in cast(list[Any], content)]}

    return [bare_message(message) for message in messages]


def media_kind(part: Any) -> MediaKind | None:
    """What the part of a message has; None if it is no media."""
    if not isinstance(part, dict):
        return None
    kind = cast(dict[str, Any], part).get("type")
    return MEDIA_PARTS.get(kind) if isinstance(kind, str) else None


def file_url(value: Any) -> str | None:
    """The URL of a part's field such as `image_url`, an object or the URL itself; None if it has
    none."""
    url = cast(dict[str, Any], value).get("url") if isinstance(value, dict) else value
    return url if isinstance(url, str) and url else None


def check_media(part: Mapping[str, Any], where: str, param: str) -> None:
    """Checks a part whose type is one of `MEDIA_PARTS`.

    Raises:
        ApiError: 400: it has neither a file nor the name of what was sent before.
    """
    field = part["type"]
    if field in EMBEDS_PARTS:
        _check_embeds(part, where, param)
        return
    is_named, value = check_uuid(part, where, param), part.get(field)
    if _has_file(part) or (is_named and has_no_url(value)):
        return
    form = '{"url": URL}: a data: URL, or one of a host that the server allows'
    if field == _FILE_PART:
        form = '{"data": BASE64, "format": "wav"}: the file in base64'
    raise bad_request(
        f"`{where}.{field}` must be {form}. It may be null with the `uuid` of one sent before.",
        param,
    )


def _check_embeds(part: Mapping[str, Any], where: str, param: str) -> None:
    name, kind = part["type"], EMBEDS_PARTS[part["type"]]
    fields = _embeds_of(part) or {}
    text = fields.get(name)
    if part.get("uuid") is not None:
        raise bad_request(f"`{where}.uuid` names files; a part with `{name}` has none.", param)
    if not isinstance(text, str) or not text or unknown_fields(kind, fields):
        grid = f', "{GRID}": [1, HEIGHT, WIDTH]' if kind == "image" else ""
        raise bad_request(
            f"`{where}.{name}` must be base64 of a tensor [rows, width], as safetensors or"
            f' torch.save writes it, or {{"{name}": BASE64, "shape": [...]{grid}}}.',
            param,
        )


def check_uuid(part: Mapping[str, Any], where: str, param: str) -> bool:
    """Whether the part of a media item names it.

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
    """Whether a part's field such as `image_url` is left out, for media that the server has."""
    return value is None or value == {} or value == {"url": None}


def _has_file(part: Mapping[str, Any]) -> bool:
    """Whether `_url_of` is not empty; the file, which may be megabytes, is not copied."""
    value = part.get(part["type"])
    if part["type"] == _FILE_PART:
        return isinstance(value, dict) and has_audio(cast(dict[str, Any], value))
    return file_url(value) is not None


def _embeds_of(part: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """What a part has that gives the embeddings of its media; None for other parts."""
    name = part["type"]
    if name not in EMBEDS_PARTS:
        return None
    value = part.get(name)
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {name: value}


def _url_of(part: Mapping[str, Any]) -> str:
    """That of a media part, with the file of one that has it; "" if it has neither."""
    value = part.get(part["type"])
    if part["type"] == _FILE_PART:
        return audio_url(cast(dict[str, Any], value)) if isinstance(value, dict) else ""
    return file_url(value) or ""
