"""Tests of pagemill.render.token_reach: the number is never too large, and large enough to help."""

import unicodedata
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, normalizers, pre_tokenizers
from tokenizers.models import BPE, WordPiece

from pagemill.render import token_reach
from pagemill.render.gguf_tokenizer import tokenizer_from_gguf
from pagemill.render.sample_vocabularies import (
    TEXT,
    byte_level_metadata,
    sentencepiece_metadata,
    sentencepiece_model,
)
from pagemill.render.token_reach import TokenReach, utf8_bytes
from pagemill.render.tokenizer import TextTokenizer


@cache
def _tokenizers() -> dict[str, Tokenizer]:
    return {
        "byte-level": tokenizer_from_gguf(byte_level_metadata()),
        "nfc": tokenizer_from_gguf(byte_level_metadata("qwen2")),
        "sentencepiece": tokenizer_from_gguf(sentencepiece_metadata(sentencepiece_model())),
    }


@given(
    st.text() | st.text("\u1100\u1161\u11a8e\u0301\u212a \n<|im_end>abc") | st.sampled_from(TEXT)
)
@pytest.mark.parametrize("kind", ["byte-level", "nfc", "sentencepiece"])
def test_no_text_has_fewer_tokens(kind: str, text: str) -> None:
    tokenizer = TextTokenizer(_tokenizers()[kind])
    for part in (text, text * 30):
        for parse in (False, True):
            ids = tokenizer.encode(part, add_special_tokens=False, parse_special=parse)
            assert tokenizer.min_tokens(part, 10**9) <= len(ids)


@pytest.mark.parametrize("kind", ["byte-level", "nfc", "sentencepiece"])
def test_the_longest_token_is_what_it_says(kind: str) -> None:
    tokenizer = _tokenizers()[kind]
    vocabulary = tokenizer.get_vocab(with_added_tokens=True)
    reach = TokenReach(tokenizer)
    longest = max(map(len, vocabulary))
    assert reach.min_tokens("x" * longest * 1000, 10**9) == 1000
    assert reach.min_tokens("x" * longest * 1000 + "x", 10**9) == 1001
    assert reach.min_tokens("", 10**9) == 0


def test_bert_has_a_token_for_each_word() -> None:
    pieces = ["[UNK]", "[CLS]", "a", "##a", "x", "!", "1"]
    bert = Tokenizer(WordPiece({piece: i for i, piece in enumerate(pieces)}, unk_token="[UNK]"))
    bert.normalizer = normalizers.BertNormalizer()
    bert.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    bert.add_special_tokens(["[CLS]"])
    reach = TokenReach(bert)

    @given(st.text() | st.text("ax1!\u0301\x00\x1c\x85\xa0\u200b\u3000\u4e2d \n[CLS]"))
    def check(text: str) -> None:
        ids = bert.encode(text).ids
        assert reach.min_tokens(text, 10**9) <= len(ids)
        for size in (1, 2, 3):
            assert bert.encode(reach.head(text, size)).ids[:size] == ids[:size]

    check()
    assert reach.head("a b c" * 1000, 2) == "a b"
    assert reach.min_tokens("a b\n!" * 1000, 10**9) == 2001
    assert reach.min_tokens("a b\n!" * 1000, 7) == 7
    assert reach.min_tokens(" " * 1000 + "a" * 1000, 10**9) == 1


def test_nfc_shortens_to_a_quarter_at_most() -> None:
    # The longest spelling of each character that NFC can write.
    composed = [chr(code) for code in range(0x30000) if _is_canonical(chr(code))]
    others: dict[str, list[str]] = {}
    for char in composed:
        parts = unicodedata.normalize("NFD", char)
        others.setdefault(parts, []).append(char)
    sizes: list[float] = []
    counts: list[int] = []
    for char in {unicodedata.normalize("NFC", char) for char in composed}:
        parts = unicodedata.normalize("NFD", char)
        spellings = [max(map(utf8_bytes, [part, *others.get(part, [])])) for part in parts]
        sizes.append(sum(spellings) / utf8_bytes(char))
        counts.append(len(parts))
    shrinks = token_reach._NFC_SHRINKS
    assert 1 < max(sizes) <= shrinks
    assert max(counts) == shrinks


def _is_canonical(char: str) -> bool:
    decomposition = unicodedata.decomposition(char)
    return char in "\uac00\uac01" or bool(decomposition and decomposition[0] != "<")


def test_vocabularies_that_lose_text_have_no_bound() -> None:
    alphabet = {char: index for index, char in enumerate(pre_tokenizers.ByteLevel.alphabet())}
    lossless = Tokenizer(BPE(alphabet, []))
    lossless.pre_tokenizer = pre_tokenizers.ByteLevel(False)
    assert TokenReach(lossless).min_tokens("x" * 100, 10**9) == 100
    words = Tokenizer(WordPiece({"[UNK]": 0, "a": 1}, unk_token="[UNK]"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    no_bytes = Tokenizer(BPE({"a": 0}, [], unk_token="a", fuse_unk=True))
    holes = Tokenizer(BPE({char: i for char, i in alphabet.items() if char != "x"}, []))
    holes.pre_tokenizer = pre_tokenizers.ByteLevel(False)
    assert TokenReach(holes).min_tokens("x" * 100 + "y" * 100, 10**9) == 100
    holes.normalizer = normalizers.NFC()
    assert TokenReach(holes).min_tokens("x" * 100 + "y" * 100, 10**9) == 100
    assert TokenReach(holes).min_tokens("\u00e9" * 100, 10**9) == 0
    stripped = Tokenizer(BPE(alphabet, []))
    stripped.pre_tokenizer = pre_tokenizers.ByteLevel(False)
    stripped.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.Strip()])
    dropped = Tokenizer(BPE(alphabet, []))
    dropped.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(" ", "removed"), pre_tokenizers.ByteLevel(False)]
    )
    for tokenizer in (words, no_bytes, stripped, dropped):
        assert TokenReach(tokenizer).min_tokens("x" * 10**6, 10**9) == 0
