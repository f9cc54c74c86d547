"""Byte-level BPE from byte strings whose order is that of the merges, as tiktoken has it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE

from pagemill.render.errors import RenderError
from pagemill.render.merges import kept_merges
from pagemill.render.token_bytes import byte_alphabet

MAX_TOKENS = 2**20


def byte_tokenizer(
    pieces: Mapping[int, bytes],
    added: Mapping[int, AddedToken],
    pattern: str,
    cache: Path | None = None,
) -> Tokenizer:
    """Returns a tokenizer.

    Args:
      pieces: the bytes of each token; lower ids are merged first.
      added: tokens that text does not spell; ids that neither has become more of them.
      pattern: what one word of a text looks like, within which bytes are merged.
      cache: the folder where merges are kept for the next start; see `merges.kept_merges`.

    Raises:
      RenderError: there are two tokens of the same text, or too many.
    """
    size = 1 + max([*pieces, *added], default=-1)
    if size > MAX_TOKENS or min([*pieces, *added], default=0) < 0:
        raise RenderError(f"the tokens of a tokenizer are not 0 to at most {MAX_TOKENS - 1}")
    unused = (index for index in range(size) if index not in pieces and index not in added)
    added = {**added, **{index: _unused(index) for index in unused}}
    alphabet = {byte: char for char, byte in byte_alphabet().items()}
    texts = ["".join(map(alphabet.__getitem__, pieces[index])) for index in sorted(pieces)]
    ids = dict(zip(texts, sorted(pieces), strict=True))
    ids |= {token.content: index for index, token in added.items()}
    if len(ids) != len(pieces) + len(added):
        raise RenderError("a tokenizer has a token twice")
    merges = kept_merges(texts, None, cache / "merges" if cache else None)
    tokenizer = Tokenizer(BPE(vocab=ids, merges=merges, ignore_merges=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(pattern), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    in_order: Sequence[AddedToken] = [added[index] for index in sorted(added)]
    tokenizer.add_special_tokens([token for token in in_order if token.special])
    tokenizer.add_tokens([token for token in in_order if not token.special])
    return tokenizer


def _unused(index: int) -> AddedToken:
    return AddedToken(f"<|unused_{index}|>", normalized=False, special=True)
