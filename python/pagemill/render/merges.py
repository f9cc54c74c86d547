"""Merges of SentencePiece BPE vocabularies: derived, and kept in a folder for the next start.

merges = kept_merges(tokens, scores, folder)

A vocabulary of 262,144 pieces takes a second or two to derive and a tenth of that to read.
"""

import hashlib
import logging
import math
import os
import tempfile
from array import array
from collections.abc import Sequence
from pathlib import Path

from pagemill.render.errors import RenderError

_LOGGER = logging.getLogger(__name__)
_HEADER = b"pagemill merges 1\n"
_DIGEST_BYTES = 16

Merges = list[tuple[str, str]]


def kept_merges(
    tokens: Sequence[str], scores: Sequence[float] | None, folder: Path | None
) -> Merges:
    """Returns `derive_merges(tokens, scores)`, from `folder` if an earlier call kept them there.

    A damaged file is written again. Without a folder, or if it cannot be written, nothing is
    kept.

    Raises:
      RenderError: a score is not a number.
    """
    if folder is None:
        return derive_merges(tokens, scores)
    path = folder / _key(tokens, scores)
    try:
        return _parse(path.read_bytes(), tokens)
    except FileNotFoundError:
        pass
    except (OSError, ValueError, IndexError) as error:
        _LOGGER.warning("%s is damaged and is written again: %s", path, error)
    merges = derive_merges(tokens, scores)
    try:
        _write(path, _to_bytes(merges, tokens))
    except OSError as error:
        _LOGGER.info("the tokenizer's merges are not kept for the next start: %s", error)
    return merges


def derive_merges(tokens: Sequence[str], scores: Sequence[float] | None = None) -> Merges:
    """Returns the merges that a SentencePiece BPE vocabulary implies, the first to apply first.

    Each way to cut a piece into two pieces of the vocabulary is a merge. Pieces rank by score, best
    first, or by their place in `tokens` if `scores` is None; among the ways to cut one piece, the
    longer left part is first.

    Raises:
      RenderError: a score is not a number.
    """
    if scores is not None and any(math.isnan(score) for score in scores):
        raise RenderError("the GGUF file's tokenizer.ggml.scores holds NaN")
    known = set(tokens)
    merges: Merges = []
    ranks: list[tuple[float, int, int]] = []
    for index, piece in enumerate(tokens):
        for cut in range(len(piece) - 1, 0, -1):
            left = piece[:cut]
            if left in known and piece[cut:] in known:
                merges.append((left, piece[cut:]))
                if scores is not None:
                    ranks.append((scores[index], cut, len(piece) - cut))
    if scores is None:
        return merges
    best_first = sorted(range(len(merges)), key=ranks.__getitem__, reverse=True)
    return [merges[at] for at in best_first]


def _key(tokens: Sequence[str], scores: Sequence[float] | None) -> str:
    """The name of the file: of all that the merges depend on."""
    content = hashlib.blake2b(digest_size=_DIGEST_BYTES)
    content.update(array("I", map(len, tokens)).tobytes())
    content.update("".join(tokens).encode("utf-8", "surrogatepass"))
    content.update(b"" if scores is None else b"scores" + array("d", scores).tobytes())
    return content.hexdigest()


def _checksum(pairs: bytes) -> bytes:
    return hashlib.blake2b(pairs, digest_size=_DIGEST_BYTES).digest()


def _to_bytes(merges: Merges, tokens: Sequence[str]) -> bytes:
    """A header, a checksum, and for each merge the indices of its parts (this machine's order)."""
    places = {token: index for index, token in enumerate(tokens)}
    pairs = array("I", (places[part] for merge in merges for part in merge)).tobytes()
    return _HEADER + _checksum(pairs) + pairs


def _parse(content: bytes, tokens: Sequence[str]) -> Merges:
    """The merges of `_to_bytes`; ValueError or IndexError if it is damaged."""
    start = len(_HEADER) + _DIGEST_BYTES
    pairs = content[start:]
    if content[:start] != _HEADER + _checksum(pairs):
        raise ValueError("its checksum differs")
    indices = array("I")
    indices.frombytes(pairs)
    parts = [tokens[index] for index in indices]
    return list(zip(parts[::2], parts[1::2], strict=True))


def _write(path: Path, content: bytes) -> None:
    """Replaces the file at once, so that no process reads a part of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(dir=path.parent, suffix=".writing")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        os.replace(name, path)
    except OSError:
        Path(name).unlink(missing_ok=True)
        raise
