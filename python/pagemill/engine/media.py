"""Media of a prompt: a placeholder token each, which becomes as many tokens as embeddings.

media, front_ends = [PreparedMedia("image", pixels)], MediaFrontEnd.of_built(built, source)
prompt = place_media(RenderedPrompt.of([1, 32000, 5]), media, front_ends, encode)
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, get_args

import numpy as np
from msgspec import structs

from pagemill.engine.media_rows import items_of_rows, whole_item, with_stand_in
from pagemill.engine.newlines import NONE_JOINED, append_joined, joined_newlines
from pagemill.engine.outputs import EngineError
from pagemill.inputs.media_kind import MediaKind
from pagemill.inputs.prepared_media import PreparedMedia
from pagemill.inputs.rendered_prompt import (
    GridPositions,
    MediaFeatures,
    MediaItem,
    RenderedPrompt,
)
from pagemill.models.base import (
    MediaEncoder,
    MediaPart,
    MediaTraits,
    ModelConfigError,
    SoundItem,
    TiledModel,
)
from pagemill.ops.program import GRID_DIMS
from pagemill.runner.architecture import media_encoders
from pagemill.weights.source import ModelSource

if TYPE_CHECKING:
    from pagemill.runner.build import BuiltModel

_VALUES: Mapping[MediaKind, str] = {"image": "pixels", "audio": "samples", "video": "pixels"}


class _Item(NamedTuple):
    """An item, and the token that stands for it."""

    features: MediaFeatures
    placeholder: int


class MediaRows(NamedTuple):
    """The encoder of media that are rows of embeddings: its number, and whether its items have
    positions of several dimensions."""

    number: int
    has_grid: bool


class MediaFrontEnd(NamedTuple):
    """What front ends need of an encoder: its number among those that the model is served with, its
    traits, what makes its input, and what divides an image, audio or a video into several items.
    `rows` is the encoder of media that are rows of embeddings; None: these are refused.
    `is_loaded`: other media are encoded."""

    number: int
    traits: MediaTraits
    features: Callable[[PreparedMedia], MediaFeatures]
    layout: Callable[[PreparedMedia], Sequence[MediaPart]] | None
    rows: MediaRows | None = None
    is_loaded: bool = True

    @classmethod
    def of(
        cls,
        source: ModelSource,
        refused: Collection[str] = (),
        *,
        takes_rows: bool = False,
        is_loaded: bool = True,
    ) -> tuple[MediaFrontEnd, ...]:
        """Those of the model of `source`, by its configuration alone, without encoders that take
        only `refused` kinds of media; empty if it takes none.

        Raises:
            ModelConfigError: the model is not known.
        """
        encoders = [each for each in media_encoders(source) if not each.traits.is_refused(refused)]
        has_grid = any(each.traits.token_grid for each in encoders)
        rows = MediaRows(len(encoders) if is_loaded else 0, has_grid) if takes_rows else None
        return tuple(
            cls(
                number,
                traits,
                encoder.features,
                encoder.layout if isinstance(encoder, TiledModel) else None,
                rows,
                is_loaded,
            )
            for number, (traits, encoder) in enumerate(encoders)
            if isinstance(encoder, MediaEncoder)
        )

    @classmethod
    def of_built(cls, built: BuiltModel, source: ModelSource) -> tuple[MediaFrontEnd, ...]:
        """Those of the model of `source` as it was built; empty if it takes no media."""
        if not built.takes_media:
            return ()
        taken = {kind for each in built.encoders for kind in each.traits.placeholders}
        return cls.of(
            source,
            set(get_args(MediaKind)) - taken,
            takes_rows=built.takes_media_embeds,
            is_loaded=built.encodes_media,
        )


def media_kinds(source: ModelSource) -> tuple[MediaKind, ...]:
    """The kinds of media that the model of `source` takes if it is loaded with its encoders."""
    try:
        encoders = media_encoders(source)
    except ModelConfigError:  # one of the fallback, which has no encoders
        return ()
    kinds: dict[MediaKind, None] = {}
    for encoder in encoders:
        kinds |= dict.fromkeys(encoder.traits.placeholders)
    return tuple(kinds)


def place_media(
    prompt: RenderedPrompt,
    media: Sequence[PreparedMedia],
    front_ends: Sequence[MediaFrontEnd],
    encode: Callable[[str], Sequence[int]],
) -> RenderedPrompt:
    """The prompt with as many placeholders for each of `media` as it has embeddings, and the media;
    or the items that the model divides them into, and the texts between these.

    Args:
        prompt: text with one placeholder token for each of `media`, that of its kind.
        media: in the order of their placeholders; only the order among those of a kind counts.
        front_ends: of the model's encoders; empty if it takes no media.
        encode: the token ids of a text with control tokens, and no others around it.

    Raises:
        EngineError: INVALID_ARGUMENT if the model takes no media of a kind, there are more or fewer
            than placeholders, one has the wrong size, or they become too many items; or the
            tokenizer lacks the ends of rows.
    """
    reader: dict[MediaKind, MediaFrontEnd] = {}
    for front_end in front_ends:
        for kind in front_end.traits.placeholders:
            reader.setdefault(kind, front_end)
    by_kind: dict[MediaKind, list[PreparedMedia]] = {kind: [] for kind in reader}
    for each in media:
        if each.kind not in by_kind:
            named = media_param(each.kind)
            raise _refusal(each.kind, f"this model takes no {named}, but the prompt has some")
        by_kind[each.kind].append(each)
    rest: dict[int, tuple[MediaFrontEnd, Iterator[tuple[int, PreparedMedia]]]] = {}
    for kind, front_end in reader.items():
        placeholder = front_end.traits.placeholders[kind]
        _check_number(prompt, kind, len(by_kind[kind]), placeholder)
        rest[placeholder] = front_end, iter(enumerate(by_kind[kind]))
    if not media:
        return prompt
    _check_alone({each.kind: None for each in media}, reader)
    joins_newlines = any(front_end.traits.joins_newlines for front_end in front_ends)
    joined = joined_newlines(encode) if joins_newlines else NONE_JOINED
    behind_text = False
    expanded: list[int] = []
    items: list[MediaItem] = []
    ends = [_row_ends(front_end.traits, encode) for front_end in front_ends]
    token_ids: list[int] = prompt.token_ids.tolist()
    if by_kind.get("video"):
        token_ids = _without_video_ends(token_ids, reader["video"].traits, encode)
    encoded = _encoded_tokens(front_ends)
    for index, token in enumerate(token_ids):
        if token in encoded and not rest.keys().isdisjoint(_beside(token_ids, index)):
            items.append(MediaItem(_content_id(encoded[token]), len(expanded), encoded[token]))
        if token not in rest:
            append_joined(expanded, [token], joined if behind_text else NONE_JOINED)
            behind_text = False
            continue
        front_end, own = rest[token]
        number, each = next(own)
        shared = expanded[-1:] if behind_text and front_end.traits.shares_ends else None
        for part in _parts(number, each, front_end, reader.get("audio")):
            behind_text = isinstance(part, str)
            if isinstance(part, str):
                ids = list(encode(part))
                append_joined(expanded, ids[1:] if ids[:1] == shared else ids, joined)
            else:
                features, placeholder = part
                content_id = _content_id(features)
                items.append(MediaItem(content_id, len(expanded), features, each.kind))
                expanded += _tokens(features, placeholder, ends[front_end.number])
            shared = None
    try:
        return RenderedPrompt(np.array(expanded, np.int32), tuple(items))
    except ValueError as error:  # too many items
        raise _refusal(media[0].kind, str(error)) from error


def media_param(kind: MediaKind) -> str:
    """The argument of an `LLM`'s methods that has media of this kind."""
    return f"{kind}s"


def _check_number(prompt: RenderedPrompt, kind: MediaKind, number: int, placeholder: int) -> None:
    num_placeholders = int(np.count_nonzero(prompt.token_ids == placeholder))
    if num_placeholders != number:
        raise _refusal(
            kind,
            f"the prompt has {num_placeholders} placeholders (token {placeholder}) for"
            f" {number} {media_param(kind)}: each {kind} needs one",
        )


def _check_alone(kinds: Collection[MediaKind], reader: Mapping[MediaKind, MediaFrontEnd]) -> None:
    for kind in kinds:
        if reader[kind].traits.alone and len(kinds) > 1:
            raise _refusal(
                kind,
                f"this model reads {media_param(kind)} of a prompt without other media: send these"
                " in a request of their own",
            )


def _parts(
    index: int, media: PreparedMedia, front_end: MediaFrontEnd, audio: MediaFrontEnd | None
) -> list[_Item | str]:
    """Items of an image, audio or a video, and texts between them. `audio` reads its sound."""
    kind, placeholders = media.kind, front_end.traits.placeholders

    def part(each: MediaPart) -> _Item | str:
        if isinstance(each, str):
            return each
        if isinstance(each, SoundItem):
            assert audio is not None
            features = structs.replace(each.features, encoder=audio.number)
            return _Item(features, audio.traits.placeholders["audio"])
        if isinstance(each, PreparedMedia):
            features, placeholder = front_end.features(each), placeholders[each.kind]
        else:
            features, placeholder = each, placeholders[kind]
        number = front_end.number + features.encoder
        return _Item(structs.replace(features, encoder=number), placeholder)

    try:
        if media.sound is not None:
            _check_sound(front_end.traits, audio)
        if media.embeddings is not None:
            layout = _layout_of_rows(media, media.embeddings, front_end)
        else:
            if not front_end.is_loaded:
                raise ValueError("no encoder is loaded: give its embeddings")
            layout = (media,) if front_end.layout is None else front_end.layout(media)
        parts = [part(each) for each in (*_number(index, front_end.traits), *layout)]
        if media.embeddings is not None:
            parts = _with_rows(parts, media.embeddings, front_end)
    except ValueError as error:
        raise _refusal(kind, f"{kind} {index}: {error}") from error
    if not all(isinstance(each, str) or np.isfinite(each.features.rows).all() for each in parts):
        values = _VALUES[kind] if media.embeddings is None else "embeddings"
        raise _refusal(kind, f"{kind} {index} has {values} that are not finite")
    return parts


def _layout_of_rows(
    media: PreparedMedia, rows: np.ndarray, front_end: MediaFrontEnd
) -> Sequence[MediaPart]:
    """The layout of what the encoder would have read; raises ValueError."""
    if front_end.rows is None:
        raise ValueError("embeddings of media are taken with --enable-mm-embeds alone")
    stand_in = with_stand_in(media, front_end.traits, divides=front_end.layout is not None)
    if not stand_in.values.size:
        return (whole_item(rows, front_end.traits),)
    return (stand_in,) if front_end.layout is None else front_end.layout(stand_in)


def _with_rows(
    parts: Sequence[_Item | str], rows: np.ndarray, front_end: MediaFrontEnd
) -> list[_Item | str]:
    """Parts with the given rows in place of what an encoder would read; raises ValueError."""
    assert front_end.rows is not None
    items = [each.features for each in parts if not isinstance(each, str)]
    number, has_grid = front_end.rows
    given = iter(items_of_rows(items, rows, number, has_grid=has_grid))
    return [
        each if isinstance(each, str) else each._replace(features=next(given)) for each in parts
    ]


def _check_sound(traits: MediaTraits, audio: MediaFrontEnd | None) -> None:
    """Raises ValueError unless the sound of videos is heard."""
    if not traits.video_sound:
        raise ValueError("this model does not hear the sound of videos: give their frames alone")
    if audio is None:
        raise ValueError(
            "the sound of videos is audio, of which at most 0 are taken (limit_mm_per_prompt)"
        )


def _number(index: int, traits: MediaTraits) -> Sequence[str]:
    """The text in front of an image, audio or a video that says its number, if there is one."""
    if traits.number_ends is None:
        return ()
    start, end = traits.number_ends
    return (f"{start}{index}{end}",)


def _without_video_ends(
    token_ids: Sequence[int], traits: MediaTraits, encode: Callable[[str], Sequence[int]]
) -> list[int]:
    """The tokens without those of `MediaTraits.video_ends` around placeholders of videos."""
    if traits.video_ends is None:
        return list(token_ids)
    start, end = _control_tokens("video", traits.video_ends, encode)
    around = start, traits.placeholders["video"], end
    kept: list[int] = []
    for token in token_ids:
        kept.append(token)
        if tuple(kept[-3:]) == around:
            kept[-3:] = [around[1]]
    return kept


def _encoded_tokens(front_ends: Sequence[MediaFrontEnd]) -> dict[int, MediaFeatures]:
    """Tokens that are items, too (`MediaTraits.encoded_tokens`)."""
    items: dict[int, MediaFeatures] = {}
    for front_end in front_ends:
        traits, tokens = front_end.traits, front_end.traits.encoded_tokens
        for channel, token in enumerate(tokens, traits.channels - len(tokens)):
            rows = np.zeros((traits.rows, traits.channels), np.float32)
            rows[:, channel] = 1
            places = np.zeros((traits.rows, GRID_DIMS), np.int32)
            positions = GridPositions(places, places[:1], 1) if traits.grid else None
            items[token] = MediaFeatures(rows, 1, positions, encoder=front_end.number)
    return items


def _beside(token_ids: Sequence[int], index: int) -> Sequence[int]:
    """The tokens directly in front of a token and behind it."""
    return [*token_ids[max(0, index - 1) : index], *token_ids[index + 1 : index + 2]]


def _row_ends(
    traits: MediaTraits, encode: Callable[[str], Sequence[int]]
) -> tuple[int, int] | None:
    """The token ids of `MediaTraits.row_ends`."""
    if traits.row_ends is None:
        return None
    return _control_tokens("image", traits.row_ends, encode)


def _control_tokens(
    kind: MediaKind, names: tuple[str, str], encode: Callable[[str], Sequence[int]]
) -> tuple[int, int]:
    first, second = (list(encode(name)) for name in names)
    if len(first) != 1 or len(second) != 1:
        raise _refusal(kind, f"{' or '.join(names)} is no token of this model's tokenizer")
    return first[0], second[0]


def _tokens(item: MediaFeatures, placeholder: int, ends: tuple[int, int] | None) -> list[int]:
    """Placeholders of an item, and the ends of its rows."""
    if ends is None:
        return [placeholder] * item.tokens
    between, last = ends
    row = [placeholder] * item.row_tokens
    rows = item.tokens // (item.row_tokens + 1)
    return (row + [between]) * (rows - 1) + row + [last]


def _content_id(features: MediaFeatures) -> str:
    # The KV cache finds blocks by it: colliding contents would mix up media.
    # KV depends on positions as well, which equal patches have others of in another grid.
    form = f"{features.encoder} {features.rows.shape} {features.tokens}"
    digest = hashlib.sha256(form.encode())
    digest.update(features.rows.tobytes())
    if features.positions is not None:
        digest.update(features.positions.rows.tobytes())
        digest.update(features.positions.tokens.tobytes())
        digest.update(features.positions.next.to_bytes(4, "little"))
    if features.row_tokens:
        digest.update(features.row_tokens.to_bytes(4, "little"))
    if features.placement is not None:
        digest.update(features.placement.tobytes())
    if features.shares is not None:
        digest.update(features.shares.tobytes())
    return digest.hexdigest()


def _refusal(kind: MediaKind, message: str) -> EngineError:
    return EngineError("INVALID_ARGUMENT", message, media_param(kind))
