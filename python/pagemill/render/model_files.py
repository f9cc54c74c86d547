"""What a model's files say of chats: the tokenizer, the chat template, and what renders it."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from pagemill.render.errors import RenderError
from pagemill.render.formats.checkpoint import Checkpoint
from pagemill.render.json_values import as_array, as_object
from pagemill.render.renderers import table
from pagemill.render.retrieval_template import TOWER_IMAGE, pair_template, retrieval_template
from pagemill.render.special_tokens import (
    end_ids,
    read_json,
    tokens_from_config,
    tokens_from_gguf,
)
from pagemill.render.template_wire import MAX_TEMPLATE_CHARS
from pagemill.render.tokenizer import Padding, TextTokenizer

# By the `model_type` of a model: what its template writes for an image or a video, and the token of
# its embeddings, if that is another.
_TEMPLATE_TEXTS = {
    "aya_vision": {"<image>": "<|IMG_PATCH|>"},
    "ernie4_5_vl_moe": {
        "<|image@placeholder|>": "<|IMAGE_PLACEHOLDER|>",
        "<|video@placeholder|>": "<|VIDEO_PLACEHOLDER|>",
    },
    "gemma3": {"<start_of_image>": "<image_soft_token>"},
    "internvl_chat": {"<image>": "<IMG_CONTEXT>"},
    "llama4": {"<|image|>": "<|patch|>"},
    "qianfan_ocr": {"<image>": "<IMG_CONTEXT>"},
}
# Likewise: what stands for media in templates whose contents are texts.
_QWEN_MEDIA = {
    "image": "<|vision_start|><|image_pad|><|vision_end|>",
    "video": "<|vision_start|><|video_pad|><|vision_end|>",
}
_MEDIA_TEXTS = {
    "llava": {"image": "<image>"},
    "qwen2_5_vl": _QWEN_MEDIA,
    "qwen2_vl": _QWEN_MEDIA,
    "qwen3_vl": _QWEN_MEDIA,
    "qwen3_vl_moe": _QWEN_MEDIA,
}
# Likewise: tokens that stand for media, which its tokenizer lacks.
_ADDED_TOKENS = {
    "clip": (TOWER_IMAGE,),
    "metaclip_2": (TOWER_IMAGE,),
    "siglip": (TOWER_IMAGE,),
    "siglip2": (TOWER_IMAGE,),
}
# Likewise: how many tokens texts are padded to, by default.
_PADDED_LENGTHS = {"siglip": 64, "siglip2": 64}


class GgufMetadata(Protocol):
    """The part of `weights.GgufFile` that is used here."""

    @property
    def metadata(self) -> Mapping[str, Any]: ...


class RenderSource(Protocol):
    """The part of `weights.ModelSource` that is used here."""

    @property
    def path(self) -> Any: ...  # the directory of an "hf" model

    @property
    def config(self) -> Mapping[str, Any]: ...

    @property
    def gguf(self) -> GgufMetadata | None: ...


class OpenedTokenizer(NamedTuple):
    """A model's tokenizer, its tokens by their roles ("bos_token", ...), those that end a
    generation, and what its files say of formats."""

    tokenizer: TextTokenizer
    special_tokens: dict[str, str]
    eos_token_ids: Sequence[int]
    checkpoint: Checkpoint


def chat_row(source: RenderSource, mode: str, *, has_own_template: bool) -> table.Row | None:
    """The renderer of a model's chats, None for Jinja; arguments as for `table.choose`.

    Raises:
      RenderError: the mode is unknown, or a file cannot be read.
    """
    files: list[str] = []
    if source.gguf is None:
        folder = Path(source.path)
        if not (folder / "tokenizer.json").is_file() or not template_sources(source, None):
            names = (row.file for row in table.RENDERERS.values())
            files = [name for name in names if name and (folder / name).is_file()]
    return table.choose(mode, source.config, has_own_template=has_own_template, files=files)


def open_tokenizer(
    source: RenderSource, cache: Path | None, row: table.Row | None = None
) -> OpenedTokenizer:
    """The tokenizer of an opened model.

    Args:
      source: the model.
      cache: as for `Renderer.open`.
      row: the renderer of its chats.

    Raises:
      RenderError: there is none, or it cannot be used.
    """
    settings: Mapping[str, Any] = {}
    if row is not None and row.vocabulary:
        if source.gguf is not None:
            raise RenderError(
                f"this --tokenizer-mode reads {row.file} or the like in a model's folder; for a"
                " GGUF file use hf"
            )
        folder = Path(source.path)
        opened, tokens = table.open_vocabulary(row, folder, cache)
        tokenizer = TextTokenizer(opened)
        ends = [_id_of(tokenizer, tokens["eos_token"])]
    elif source.gguf is not None:
        metadata = source.gguf.metadata
        tokenizer = TextTokenizer.from_gguf(metadata, cache)
        tokens = tokens_from_gguf(metadata)
        ends = []
    else:
        folder = Path(source.path)
        added = _ADDED_TOKENS.get(str(source.config.get("model_type")), ())
        tokenizer = TextTokenizer.from_file(folder / "tokenizer.json", added)
        settings = read_json(folder / "tokenizer_config.json")
        tokens = tokens_from_config(settings)
        ends = [_id_of(tokenizer, tokens.get("eos_token"))]
        tokenizer.padding = _padding(source.config, tokenizer, tokens)
    return OpenedTokenizer(
        tokenizer,
        tokens,
        [*stated_end_ids(source), *(i for i in ends if i is not None)],
        Checkpoint(tokenizer.added_tokens, settings),
    )


def stated_end_ids(source: RenderSource) -> list[int]:
    """The ids of tokens that end a generation, as an opened model's files state them.

    Raises:
      RenderError: generation_config.json cannot be read.
    """
    if source.gguf is not None:
        metadata = source.gguf.metadata
        ends = [metadata.get(f"tokenizer.ggml.{key}_token_id") for key in ("eos", "eot", "eom")]
    else:
        ends = [read_json(Path(source.path) / "generation_config.json").get("eos_token_id")]
    ends.append(source.config.get("eos_token_id"))
    return [i for value in ends for i in end_ids(value)]


def read_template(text_or_path: str) -> str:
    """Returns a template given as itself or as the path of a file.

    Raises:
      RenderError: it is neither.
    """
    if any(mark in text_or_path for mark in ("{{", "{%", "\n")):
        return text_or_path
    path = Path(text_or_path).expanduser()
    try:
        if path.stat().st_size > 4 * MAX_TEMPLATE_CHARS:  # UTF-8 has at most 4 bytes a character
            raise RenderError(f"the chat template {path} is too large")
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        if isinstance(error, RenderError):
            raise
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise RenderError(f"the chat template {text_or_path!r} cannot be read: {reason}") from None


def template_sources(source: RenderSource, replacement: str | None) -> dict[str, str]:
    """Returns "default" and, if the model has one for tools, "tool_use"; nothing without a default.

    Args:
      source: the model.
      replacement: a file or a template to use in place of the model's own.

    Raises:
      RenderError: a file cannot be read.
    """
    if source.gguf is not None:
        metadata = source.gguf.metadata
        own = pair_template(metadata) or metadata.get("tokenizer.chat_template")
        return _named(own if replacement is None else read_template(replacement))
    folder = Path(source.path)
    if replacement is not None:
        found = read_template(replacement)
    elif (written := retrieval_template(source.config.get("model_type"), folder)) is not None:
        found = written
    elif (file := folder / "chat_template.jinja").is_file():
        found = read_template(str(file))
    else:
        # A processor's template knows images; the tokenizer's may be an older one for text.
        found = read_json(folder / "chat_template.json").get("chat_template")
        if found is None:
            found = read_json(folder / "tokenizer_config.json").get("chat_template")
    named = _named(found)
    for written, token in _TEMPLATE_TEXTS.get(str(source.config.get("model_type")), {}).items():
        named = {name: text.replace(written, token) for name, text in named.items()}
    return named


def media_texts(source: RenderSource) -> dict[str, str]:
    """What stands for an item of a kind of media in contents that are texts, of an opened model."""
    return _MEDIA_TEXTS.get(str(source.config.get("model_type")), {})


def _padding(
    config: Mapping[str, Any], tokenizer: TextTokenizer, tokens: Mapping[str, str]
) -> Padding | None:
    """How texts of a model are padded, to the positions that it has for them; None if they are not.

    Raises:
      RenderError: its files name no token for it.
    """
    kind = str(config.get("model_type"))
    if kind not in _PADDED_LENGTHS:
        return None
    token = _id_of(tokenizer, tokens.get("pad_token"))
    if token is None:
        raise RenderError(
            f"texts of {kind} are padded, but tokenizer_config.json has no pad_token of its"
            " vocabulary: name it"
        )
    text = as_object(config.get("text_config")) or {}
    length = text.get("max_position_embeddings", _PADDED_LENGTHS[kind])
    if type(length) is not int:
        raise RenderError(f"max_position_embeddings of text_config is {length!r:.60}, no number")
    return Padding(length, token, tokenizer.token_id(TOWER_IMAGE))


def _named(templates: Any) -> dict[str, str]:
    """Templates by name, of one or of a list of them."""
    several = as_array(templates)
    if several is None:
        return {"default": templates} if isinstance(templates, str) else {}
    entries = [entry for entry in map(as_object, several) if entry is not None]
    named = {str(entry.get("name")): entry.get("template") for entry in entries}
    texts = {name: text for name, text in named.items() if isinstance(text, str)}
    return texts if "default" in texts else {}


def _id_of(tokenizer: TextTokenizer, content: str | None) -> int | None:
    return None if content is None else tokenizer.token_id(content)
