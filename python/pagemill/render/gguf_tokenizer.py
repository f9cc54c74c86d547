"""A tokenizer from the metadata of a GGUF file.

Four kinds are known: "gpt2", byte-level BPE with merges; "llama", SentencePiece BPE, whose order of
merges follows from the pieces' scores and what no piece covers becomes bytes, and which Gemma 4
calls "gemma4"; and "bert" and "t5" of encoders.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    normalizers,
    pre_tokenizers,
    processors,
)
from tokenizers.models import BPE

from pagemill.render.errors import RenderError
from pagemill.render.gguf_encoder_tokenizer import piece, unigram, wordpiece
from pagemill.render.json_values import as_array
from pagemill.render.merges import kept_merges
from pagemill.render.split_patterns import SPLIT_RULES, SplitRule

_CONTROL, _USER_DEFINED = 3, 4  # values of tokenizer.ggml.token_type
_SPACE = "\u2581"  # SentencePiece's visible space
# How many ends are between the texts of a pair, by architecture: RoBERTa has two.
_ENDS_BETWEEN = {"bert": 2, "modern-bert": 1}


def tokenizer_from_gguf(metadata: Mapping[str, Any], cache: Path | None = None) -> Tokenizer:
    """Returns the tokenizer that a GGUF file's metadata describes.

    What takes long to derive is kept in the folder `cache`, if given; see `kept_merges`.

    Raises:
      RenderError: the metadata is incomplete, or of a kind that is not supported.
    """
    kind = metadata.get("tokenizer.ggml.model")
    tokens = as_array(metadata.get("tokenizer.ggml.tokens"))
    if not tokens:
        raise RenderError("the GGUF file holds no tokenizer: tokenizer.ggml.tokens is missing")
    if kind == "gpt2":
        tokenizer = _byte_level(metadata, tokens)
    elif kind in ("llama", "gemma4"):
        tokenizer = _sentencepiece(metadata, tokens, cache)
    elif kind in ("bert", "t5"):
        return _of_encoder(kind, metadata, tokens)
    else:
        raise RenderError(
            f"the GGUF file's tokenizer is of kind {kind!r}; supported: bert, gemma4, gpt2, llama,"
            " t5. A directory in Hugging Face's layout with a tokenizer.json works for every kind"
        )
    _add_special_tokens(tokenizer, metadata, tokens)
    _add_begin_and_end(tokenizer, metadata, tokens)
    return tokenizer


def _of_encoder(kind: str, metadata: Mapping[str, Any], tokens: Sequence[Any]) -> Tokenizer:
    _vocabulary(tokens)
    if kind == "bert":
        tokenizer, own = wordpiece(metadata, tokens)
    else:
        tokenizer, own = unigram(metadata, tokens), tokens
    _add_special_tokens(tokenizer, metadata, own)
    return tokenizer


def _byte_level(metadata: Mapping[str, Any], tokens: Sequence[str]) -> Tokenizer:
    name = metadata.get("tokenizer.ggml.pre", "default")
    rule = SPLIT_RULES.get(name)
    if rule is None:
        known = ", ".join(sorted(SPLIT_RULES))
        raise RenderError(f"the GGUF file's pre-tokenizer {name!r} is unknown; known: {known}")
    merges = as_array(metadata.get("tokenizer.ggml.merges"))
    if merges is None:
        raise RenderError("the GGUF file's tokenizer.ggml.merges is missing")
    model = _bpe(
        _vocabulary(tokens),
        [_pair(merge) for merge in merges],
        ignore_merges=rule.whole_words,
    )
    tokenizer = Tokenizer(model)
    if rule.nfc:
        tokenizer.normalizer = normalizers.NFC()
    prefix = bool(metadata.get("tokenizer.ggml.add_space_prefix", False))
    tokenizer.pre_tokenizer = _splitter(rule, prefix)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _splitter(rule: SplitRule, prefix_space: bool) -> pre_tokenizers.PreTokenizer:
    steps: list[pre_tokenizers.PreTokenizer] = [
        pre_tokenizers.Split(Regex(pattern), behavior="isolated") for pattern in rule.patterns
    ]
    if rule.single_digits:
        steps.append(pre_tokenizers.Digits(individual_digits=True))
    byte_level = pre_tokenizers.ByteLevel(
        add_prefix_space=prefix_space, use_regex=not rule.patterns
    )
    return pre_tokenizers.Sequence([*steps, byte_level]) if steps else byte_level


def _sentencepiece(metadata: Mapping[str, Any], tokens: list[str], cache: Path | None) -> Tokenizer:
    is_gemma = str(metadata.get("general.architecture", "")).startswith("gemma")
    if is_gemma:
        # Runs of spaces are stored as such, and are looked up as visible ones.
        tokens = [_SPACE * len(t) if t.startswith("  ") and t.isspace() else t for t in tokens]
    vocabulary = _vocabulary(tokens)
    scores: list[float] | None = None
    if not is_gemma:  # Gemma's scores do not follow its merge order; the order of its pieces does
        scores = as_array(metadata.get("tokenizer.ggml.scores"))
        if scores is None or len(scores) != len(tokens):
            raise RenderError("the GGUF file's tokenizer.ggml.scores is missing or too short")
    stated = metadata.get("tokenizer.ggml.merges")
    if stated:
        merges = [_pair(merge) for merge in stated]
    else:
        merges = kept_merges(tokens, scores, cache / "merges" if cache else None)
    unknown = metadata.get("tokenizer.ggml.unknown_token_id")
    tokenizer = Tokenizer(
        _bpe(
            vocabulary,
            merges,
            unk_token=tokens[_checked_id(unknown, tokens)] if unknown is not None else None,
            fuse_unk=True,
            byte_fallback=True,
        )
    )
    steps: list[Any] = [decoders.Replace(_SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    tokenizer.normalizer = normalizers.Replace(" ", _SPACE)
    if not is_gemma and metadata.get("tokenizer.ggml.add_space_prefix", True):
        tokenizer.normalizer = normalizers.Sequence(
            [normalizers.Prepend(_SPACE), normalizers.Replace(" ", _SPACE)]
        )
        steps.append(decoders.Strip(" ", 1, 0))
    tokenizer.decoder = decoders.Sequence(steps)
    return tokenizer


def _add_special_tokens(tokenizer: Any, metadata: Mapping[str, Any], tokens: Sequence[str]) -> None:
    types = metadata.get("tokenizer.ggml.token_type", [])
    special = {index for index, kind in enumerate(types[: len(tokens)]) if kind == _CONTROL}
    for name in ("bos", "eos", "unknown", "padding", "eot", "eom"):
        index = metadata.get(f"tokenizer.ggml.{name}_token_id")
        if index is not None:
            special.add(_checked_id(index, tokens))
    plain = [
        AddedToken(tokens[index], normalized=False, special=False)
        for index, kind in enumerate(types[: len(tokens)])
        if kind == _USER_DEFINED
        and index not in special
        # Gemma's runs of spaces were respelt above: they are pieces like any other.
        and tokenizer.token_to_id(tokens[index]) == index
    ]
    tokenizer.add_special_tokens(
        [AddedToken(tokens[i], normalized=False, special=True) for i in sorted(special)]
    )
    tokenizer.add_tokens(plain)


def _add_begin_and_end(
    tokenizer: Tokenizer, metadata: Mapping[str, Any], tokens: Sequence[str]
) -> None:
    # Files older than the flag are SentencePiece ones that begin with BOS.
    default_bos = metadata.get("tokenizer.ggml.model") == "llama"
    template: list[str] = ["$A"]
    used: list[dict[str, object]] = []
    for name, flag in (("bos", default_bos), ("eos", False)):
        index = metadata.get(f"tokenizer.ggml.{name}_token_id")
        if index is None or not metadata.get(f"tokenizer.ggml.add_{name}_token", flag):
            continue
        used.append(piece(name, _checked_id(index, tokens), tokens))
        template.insert(0 if name == "bos" else len(template), name)
    if used:
        between = _ENDS_BETWEEN.get(str(metadata.get("general.architecture")))
        pair = ["$A", "$B:1"]
        if between is not None and len(template) == 3:
            pair = [*template[:2], *template[2:] * between, "$B", template[2]]
        tokenizer.post_processor = processors.TemplateProcessing(
            single=template, pair=pair, special_tokens=used
        )


def _bpe(vocabulary: dict[str, int], merges: list[tuple[str, str]], **flags: Any) -> BPE:
    try:
        return BPE(vocab=vocabulary, merges=merges, **flags)
    except Exception as error:  # noqa: BLE001  the library raises bare Exception
        raise RenderError(f"the GGUF file's tokenizer is inconsistent: {error}") from None


def _vocabulary(tokens: Sequence[Any]) -> dict[str, int]:
    if not all(isinstance(token, str) for token in tokens):
        raise RenderError("the GGUF file's tokenizer.ggml.tokens are not strings")
    return dict(zip(tokens, range(len(tokens)), strict=True))


def _pair(merge: Any) -> tuple[str, str]:
    left, space, right = merge.partition(" ") if isinstance(merge, str) else ("", "", "")
    if not (left and space and right):
        raise RenderError(f"the GGUF file's tokenizer.ggml.merges holds {merge!r}")
    return left, right


def _checked_id(index: Any, tokens: Sequence[str]) -> int:
    if not isinstance(index, int) or not 0 <= index < len(tokens):
        raise RenderError(f"the GGUF file names token {index!r}, but has {len(tokens)} tokens")
    return index
