"""Text to token ids.

A thin face over Hugging Face's `tokenizers`, which releases the GIL while it works. What it adds:
whether control tokens in the text are taken for what they say, and refusals in place of surprises.
"""

import json
import re
import threading
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tokenizers import AddedToken, Tokenizer

from pagemill.render.control_text import MAX_CONTROL_TOKENS, stand_in
from pagemill.render.errors import RenderError
from pagemill.render.gguf_tokenizer import tokenizer_from_gguf
from pagemill.render.token_bytes import TokenBytes
from pagemill.render.token_reach import TokenReach

MAX_TEXT_CHARS = 2**24  # about 4 million tokens: beyond any context, and a second of work
_PREFIX_CHARS = 3


class TextPair(NamedTuple):
    """`second_start` is the first token of the second token type; 0 if the model has none."""

    token_ids: list[int]
    second_start: int


class TextLimits(NamedTuple):
    """The most tokens of a prompt, of its first and of its second text; None = all. What is more is
    cut at the end: of a prompt the end of the second text, and then of the first."""

    prompt: int | None = None
    first: int | None = None
    second: int | None = None


NO_LIMITS = TextLimits()


class Padding(NamedTuple):
    """Prompts of fewer tokens than `length` get as many `token` behind them, but not one that has
    the token `unless`."""

    length: int
    token: int
    unless: int | None = None


class TextTokenizer:
    """A vocabulary with its rules. Thread-safe.

    Takes the longer, the more text; call it in a worker thread.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        """Takes over `tokenizer`; padding and truncation, which it may bring along, are undone:
        `padding` is what a model needs.

        Raises:
          RenderError: it has more control tokens than can be distinguished.
        """
        tokenizer.no_padding()
        tokenizer.no_truncation()
        self.padding: Padding | None = None
        self._tokenizer = tokenizer
        self._literal: Tokenizer | None = None
        self._stand_ins: tuple[Tokenizer, dict[int, int]] | None = None
        self._reach: TokenReach | None = None
        self._lock = threading.Lock()
        self.vocab_size: int = tokenizer.get_vocab_size(with_added_tokens=True)
        self._token_bytes: TokenBytes | None = None
        added = tokenizer.get_added_tokens_decoder()
        self._added_ids = {token.content: i for i, token in added.items()}
        self._control = {i: token for i, token in sorted(added.items()) if token.special}
        if len(self._control) > MAX_CONTROL_TOKENS:
            raise RenderError(
                f"the tokenizer has {len(self._control)} control tokens; at most"
                f" {MAX_CONTROL_TOKENS} are supported"
            )
        starts = sorted({token.content[:_PREFIX_CHARS] for token in self._control.values()})
        self._maybe_special = re.compile("|".join(map(re.escape, starts))) if starts else None

    @classmethod
    def from_gguf(cls, metadata: Mapping[str, Any], cache: Path | None = None) -> "TextTokenizer":
        """Returns the tokenizer of a GGUF file; see `tokenizer_from_gguf`."""
        return cls(tokenizer_from_gguf(metadata, cache))

    @classmethod
    def from_file(cls, path: Path, added: Sequence[str] = ()) -> "TextTokenizer":
        """Returns the tokenizer of a `tokenizer.json`, with these control tokens behind its own.

        Raises:
          RenderError: there is no such file, or the library cannot read it.
        """
        if not path.is_file():
            raise RenderError(
                f"{path} is missing: without a tokenizer.json a model directory cannot be served"
            )
        try:
            tokenizer = Tokenizer.from_file(str(path))
            tokenizer.add_special_tokens(list(added))
            return cls(tokenizer)
        except RenderError:
            raise
        except Exception as error:
            # The library raises bare Exception.
            raise RenderError(f"{path} is not a tokenizer: {error}") from None

    def encode(self, text: str, *, add_special_tokens: bool, parse_special: bool) -> list[int]:
        """Returns the token ids of `text`.

        Args:
          text: at most MAX_TEXT_CHARS characters.
          add_special_tokens: put the tokens around it that the model expects, such as BOS.
          parse_special: read "<|im_end|>" in the text as the control token, not as ten characters.

        Raises:
          RenderError: the text is too long, or holds half a surrogate pair.
        """
        _check_text(text)
        tokenizer = self._tokenizer
        if not parse_special and self._maybe_special and self._maybe_special.search(text):
            tokenizer = self._literal_tokenizer()
        return self._padded(_token_ids(tokenizer, text, add_special_tokens))

    def encode_pair(
        self, first: str, second: str | None, limits: TextLimits = NO_LIMITS
    ) -> TextPair:
        """Returns the token ids of two texts that a model reads together, or of one, with the
        tokens around them that it expects, and where those with the second token type begin.

        Args:
          first: at most MAX_TEXT_CHARS characters.
          second: likewise.
          limits: what is kept of the texts; the tokens around them stay.

        Raises:
          RenderError: as for `encode`.
        """
        texts = [first] if second is None else [first, second]
        for text in texts:
            _check_text(text)
        tokenizer, special = self._tokenizer, self._maybe_special
        if special and any(map(special.search, texts)):
            tokenizer = self._literal_tokenizer()
        encoding = tokenizer.encode(first, second)
        kept = _kept(encoding.sequence_ids, limits)
        ids, types = [encoding.ids[i] for i in kept], [encoding.type_ids[i] for i in kept]
        return TextPair(self._padded(ids), types.index(1) if 1 in types else 0)

    def encode_stand_ins(self, text: str, *, add_special_tokens: bool) -> list[int]:
        """Returns the token ids of `text`, whose only control tokens are stand-ins.

        Args:
          text: `control_text.stand_in(i)` is `control_tokens[i]`.
          add_special_tokens: as for `encode`.

        Raises:
          RenderError: as for `encode`.
        """
        _check_text(text)
        tokenizer, meaning = self._stand_in_tokenizer()
        ids = _token_ids(tokenizer, text, add_special_tokens)
        return self._padded([meaning.get(i, i) for i in ids])

    def min_tokens(self, text: str, enough: int) -> int:
        """Returns a number of tokens that `text` has at least; see `TokenReach.min_tokens`."""
        return self._token_reach().min_tokens(text, enough)

    def head(self, text: str, num_tokens: int) -> str:
        """Returns a beginning of `text` with the same first tokens; see `TokenReach.head`."""
        return self._token_reach().head(text, num_tokens)

    def _padded(self, ids: list[int]) -> list[int]:
        if self.padding is None or self.padding.unless in ids:
            return ids
        return ids + [self.padding.token] * (self.padding.length - len(ids))

    def _token_reach(self) -> TokenReach:
        with self._lock:
            if self._reach is None:
                self._reach = TokenReach(self._tokenizer)
            return self._reach

    @property
    def control_tokens(self) -> list[str]:
        """The control tokens, by their ids."""
        return [token.content for token in self._control.values()]

    def token_id(self, content: str) -> int | None:
        """Returns the id of the token that is exactly `content`, if there is one."""
        return self._tokenizer.token_to_id(content)

    def added_token_id(self, content: str) -> int | None:
        """Returns the id of `content` if it is a token that text cannot spell in another way."""
        return self._added_ids.get(content)

    @property
    def added_tokens(self) -> Collection[str]:
        """Texts of the tokens that text cannot spell in another way."""
        return self._added_ids.keys()

    def token_content(self, token_id: int) -> str | None:
        """Returns a token as the vocabulary spells it, if there is one."""
        return self._tokenizer.id_to_token(token_id)

    def merge_ranks(self) -> dict[int, int]:
        """Returns token id -> rank of the first merge that makes it; see `Renderer.merge_ranks`."""
        model = json.loads(self._tokenizer.to_str())["model"]
        if model["type"] != "BPE":
            raise RenderError(f"a tokenizer of type {model['type']} has no merges")
        ranks: dict[int, int] = {}
        for rank, (left, right) in enumerate(model["merges"]):
            ranks.setdefault(model["vocab"][left + right], rank)
        return ranks

    @property
    def token_bytes(self) -> TokenBytes:
        """What bytes each token stands for.

        Raises:
          RenderError: the vocabulary is of a kind that cannot be decoded.
        """
        if self._token_bytes is None:
            self._token_bytes = TokenBytes(self._tokenizer)
        return self._token_bytes

    def _literal_tokenizer(self) -> Tokenizer:
        # Whether control tokens are parsed is a setting of the library's object, so a second one
        # is created when it is first needed; it shares the vocabulary with the first.
        with self._lock:
            if self._literal is None:
                self._literal = _literal_copy(self._tokenizer)
            return self._literal

    def _stand_in_tokenizer(self) -> tuple[Tokenizer, dict[int, int]]:
        # With the id of the control token for the id of each stand-in.
        with self._lock:
            if self._stand_ins is None:
                copy: Any = _literal_copy(self._tokenizer)
                copy.add_tokens([_stand_in(n, t) for n, t in enumerate(self._control.values())])
                meaning = {copy.token_to_id(stand_in(n)): i for n, i in enumerate(self._control)}
                self._stand_ins = copy, meaning
            return self._stand_ins


def _stand_in(index: int, token: AddedToken) -> AddedToken:
    return AddedToken(
        stand_in(index),
        lstrip=token.lstrip,
        rstrip=token.rstrip,
        single_word=token.single_word,
        normalized=False,
        special=False,
    )


def _check_text(text: str) -> None:
    if len(text) > MAX_TEXT_CHARS:
        raise RenderError(
            f"a text of {len(text)} characters is too long; at most {MAX_TEXT_CHARS} are taken"
        )
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise RenderError(
            f"the text holds half a surrogate pair at character {error.start}, which is not"
            " Unicode text"
        ) from None


def _kept(texts: Sequence[int | None], limits: TextLimits) -> list[int]:
    """The tokens that are kept, by the text of each, which is None of those around."""
    around = [i for i, text in enumerate(texts) if text is None]
    first = [i for i, text in enumerate(texts) if text == 0][: limits.first]
    second = [i for i, text in enumerate(texts) if text == 1][: limits.second]
    return sorted([*around, *first, *second][: limits.prompt])


def _token_ids(tokenizer: Tokenizer, text: str, add_special_tokens: bool) -> list[int]:
    # The batch form releases the GIL, and the fast one computes no offsets.
    (encoding,) = tokenizer.encode_batch_fast([text], add_special_tokens=add_special_tokens)
    return encoding.ids


def _literal_copy(original: Tokenizer) -> Tokenizer:
    copy: Any = Tokenizer(original.model)
    if original.normalizer is not None:
        copy.normalizer = original.normalizer
    if original.pre_tokenizer is not None:
        copy.pre_tokenizer = original.pre_tokenizer
    if original.post_processor is not None:
        copy.post_processor = original.post_processor
    added: dict[int, AddedToken] = original.get_added_tokens_decoder()
    copy.add_tokens([token for _, token in sorted(added.items(), key=lambda item: item[0])])
    if any(copy.token_to_id(token.content) != index for index, token in added.items()):
        # Ids with holes cannot be had by adding in order.
        copy = Tokenizer.from_str(original.to_str())
    copy.encode_special_tokens = True
    return copy
