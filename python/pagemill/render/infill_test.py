"""Prompts of models that fill in the middle."""

from typing import Any

import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import TemplateProcessing

from pagemill.render.gguf_tokenizer import tokenizer_from_gguf
from pagemill.render.infill import Infill
from pagemill.render.sample_vocabularies import (
    byte_level_metadata,
    sentencepiece_metadata,
    sentencepiece_model,
)
from pagemill.render.tokenizer import TextTokenizer

_STARCODER = ("<fim_prefix>", "<fim_middle>", "<fim_suffix>", "<fim_pad>")
_CODE_LLAMA = ("▁<PRE>", "▁<MID>", "▁<SUF>", "▁<EOT>")


def _with_tokens(metadata: dict[str, Any], *added: str) -> TextTokenizer:
    types, tokens = metadata["tokenizer.ggml.token_type"], metadata["tokenizer.ggml.tokens"]
    more: dict[str, Any] = {
        "tokenizer.ggml.tokens": [*tokens, *added],
        "tokenizer.ggml.token_type": [*types, *(3 for _ in added)],
    }
    if "tokenizer.ggml.scores" in metadata:
        scores = metadata["tokenizer.ggml.scores"]
        more["tokenizer.ggml.scores"] = [*scores, *(0.0 for _ in added)]
    return TextTokenizer(tokenizer_from_gguf({**metadata, **more}))


def _prompt(tokenizer: TextTokenizer, prefix: str | list[int], suffix: str) -> list[int]:
    infill = Infill.of(tokenizer)
    assert infill is not None
    (ids,) = infill.prompts([prefix], suffix, add_special_tokens=True, parse_special=False)
    return ids


def _words(words: str, bos: str | None = None) -> TextTokenizer:
    vocabulary = {word: i for i, word in enumerate(words.split())}
    tokenizer = Tokenizer(WordLevel(vocabulary, unk_token="u"))
    tokenizer.pre_tokenizer = Whitespace()  # pyright: ignore[reportAttributeAccessIssue]
    if bos is not None:
        tokenizer.post_processor = TemplateProcessing(  # pyright: ignore[reportAttributeAccessIssue]
            single=f"{bos} $A", special_tokens=[(bos, vocabulary[bos])]
        )
    return TextTokenizer(tokenizer)


@pytest.mark.parametrize(
    ("vocabulary", "expected", "ends"),
    [
        (
            "u a b <|fim_suffix|> <|fim_middle|> <|fim_prefix|> <|file_sep|>",
            "<|fim_prefix|> a <|fim_suffix|> b <|fim_middle|>",
            "<|fim_prefix|> <|fim_suffix|> <|fim_middle|> <|file_sep|>",
        ),
        (
            "u a b <fim-suffix> <fim-middle> <fim-prefix>",
            "<fim-prefix> a <fim-suffix> b <fim-middle>",
            "<fim-prefix> <fim-suffix> <fim-middle>",
        ),
        (
            "u a b <｜fim▁hole｜> <｜fim▁end｜> <｜fim▁begin｜>",
            "<｜fim▁begin｜> a <｜fim▁hole｜> b <｜fim▁end｜>",
            "<｜fim▁begin｜> <｜fim▁hole｜> <｜fim▁end｜>",
        ),
        (
            "u a b <[fim-suffix]> <[fim-prefix]> <[fim-middle]>",
            "<[fim-suffix]> b <[fim-prefix]> a <[fim-middle]>",
            "<[fim-suffix]> <[fim-prefix]> <[fim-middle]>",
        ),
        ("u a b [PREFIX] [MIDDLE] [SUFFIX]", "[SUFFIX] b [PREFIX] a", "[SUFFIX] [PREFIX]"),
    ],
)
def test_layouts(vocabulary: str, expected: str, ends: str) -> None:
    tokenizer = _words(vocabulary)

    def ids(text: str) -> list[int | None]:
        return [tokenizer.token_id(token) for token in text.split()]

    infill = Infill.of(tokenizer)
    assert infill is not None and list(infill.end_ids) == ids(ends)
    assert _prompt(tokenizer, "a", "b") == ids(expected)


def test_models_without_the_tokens_have_none() -> None:
    for words in ("u a b", "u a <fim_prefix> <fim_suffix>", "u [PREFIX]"):
        assert Infill.of(_words(words)) is None


def test_the_tokens_in_front_of_a_prompt_are_in_front_of_the_layout() -> None:
    tokenizer = _words("u s a b [SUFFIX] [PREFIX]", bos="s")
    assert _prompt(tokenizer, "a", "b") == [1, 4, 3, 5, 2]
    infill = Infill.of(tokenizer)
    assert infill is not None
    found = infill.prompts([[3, 3], "a"], "b", add_special_tokens=False, parse_special=False)
    assert found == [[4, 3, 5, 3, 3], [4, 3, 5, 2]]


def test_control_tokens_in_texts_are_text_unless_they_are_to_be_parsed() -> None:
    tokenizer = _with_tokens(byte_level_metadata(), *_STARCODER)
    pre, mid, suf, pad = (tokenizer.token_id(token) for token in _STARCODER)
    ids = _prompt(tokenizer, "<fim_middle>", "<fim_pad>")
    assert (ids[0], ids.count(suf or 0), ids[-1], ids.count(pad or 0)) == (pre, 1, mid, 0)
    infill = Infill.of(tokenizer)
    assert infill is not None and infill.end_ids == (pre, suf, mid, pad)
    parsed = infill.prompts(
        ["<fim_middle>"], "<fim_pad>", add_special_tokens=True, parse_special=True
    )
    assert parsed == [[pre, mid, suf, pad, mid]]


@pytest.mark.parametrize("adds_space", [True, False])
def test_sentencepiece_puts_no_space_in_front_of_a_suffix(adds_space: bool) -> None:
    model = sentencepiece_model(adds_space)
    tokenizer = _with_tokens(sentencepiece_metadata(model, adds_space), *_CODE_LLAMA)
    ids = _prompt(tokenizer, "the dog", "the lazy dog")
    pre, mid, suf, eot = (tokenizer.token_id(token) for token in _CODE_LLAMA)
    assert None not in (pre, mid, suf, eot)
    start, at, end = ids.index(pre or 0), ids.index(suf or 0), ids.index(mid or 0)

    def text(tokens: list[int]) -> str:
        return b"".join(tokenizer.token_bytes[token] for token in tokens).decode()

    assert ids[:start] == tokenizer.encode("", add_special_tokens=True, parse_special=False)
    assert text(ids[start + 1 : at]) == " " * adds_space + "the dog"
    assert text(ids[at + 1 : end]) == "the lazy dog"
    assert end == len(ids) - 1
