"""Tests of pagemill.render.detokenizer and token_bytes."""

import json

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders
from tokenizers.models import BPE, WordPiece

from pagemill.render.detokenizer import Detokenizer
from pagemill.render.errors import RenderError
from pagemill.render.gguf_tokenizer import tokenizer_from_gguf
from pagemill.render.sample_vocabularies import (
    byte_level_metadata,
    sentencepiece_metadata,
    sentencepiece_model,
)
from pagemill.render.token_bytes import TokenBytes

TOKENIZERS = {
    "byte_level": tokenizer_from_gguf(byte_level_metadata()),
    "sentencepiece": tokenizer_from_gguf(sentencepiece_metadata(sentencepiece_model())),
}
TABLES = {name: TokenBytes(tokenizer) for name, tokenizer in TOKENIZERS.items()}
KINDS = pytest.mark.parametrize("kind", sorted(TOKENIZERS))
IDS = st.lists(st.integers(-1, 470), max_size=60)  # a few lie outside the vocabularies
# Where to cut a list: the sizes of the portions.
CUTS = st.lists(st.integers(0, 5), max_size=80)


def _portions(ids: list[int], cuts: list[int]) -> list[list[int]]:
    out: list[list[int]] = []
    at = 0
    for size in cuts:
        out.append(ids[at : at + size])
        at += size
    return [*out, ids[at:]]


def _whole(kind: str, ids: list[int], skip: bool) -> str:
    detokenizer = Detokenizer(TABLES[kind], (), skip)
    return detokenizer.push(ids) + detokenizer.flush()


def test_added_tokens_spell_spaces_as_the_vocabulary_does() -> None:
    """Gemma's runs of spaces are added tokens; in a byte-level vocabulary the same is a symbol."""
    for kind, text in (("sentencepiece", "a   b"), ("byte_level", "a\u2581\u2581\u2581b")):
        tokenizer = Tokenizer.from_str(TOKENIZERS[kind].to_str())
        tokenizer.add_tokens([AddedToken("\u2581" * 3, normalized=False)])
        (spaces,) = tokenizer.encode("\u2581" * 3, add_special_tokens=False).ids
        a, b = (tokenizer.encode(x, add_special_tokens=False).ids[-1] for x in "ab")
        detokenizer = Detokenizer(TokenBytes(tokenizer))
        assert detokenizer.push([a, spaces, b]).strip() == text
        assert tokenizer.decode([a, spaces, b]).strip() == text


@KINDS
@given(ids=IDS, cuts=CUTS, skip=st.booleans())
@settings(max_examples=500)
def test_portions_do_not_matter(kind: str, ids: list[int], cuts: list[int], skip: bool) -> None:
    detokenizer = Detokenizer(TABLES[kind], (), skip)
    deltas = [detokenizer.push(portion) for portion in _portions(ids, cuts)]
    assert "".join(deltas) + detokenizer.flush() == _whole(kind, ids, skip)


@given(ids=st.lists(st.integers(0, 449), max_size=60), skip=st.booleans())
@settings(max_examples=500)
def test_byte_level_equals_the_librarys_decode(ids: list[int], skip: bool) -> None:
    theirs = TOKENIZERS["byte_level"].decode(ids, skip_special_tokens=skip)
    assert _whole("byte_level", ids, skip) == theirs


@given(ids=st.lists(st.integers(0, 2) | st.integers(259, 419), max_size=60), skip=st.booleans())
@settings(max_examples=500)
def test_sentencepiece_equals_the_librarys_decode(ids: list[int], skip: bool) -> None:
    # Without byte tokens: the library turns a whole run of them into U+FFFD for one bad byte.
    theirs = TOKENIZERS["sentencepiece"].decode(ids, skip_special_tokens=skip)
    assert _whole("sentencepiece", ids, skip) == theirs


@KINDS
@given(text=st.text(max_size=40), cuts=CUTS)
@settings(max_examples=300)
def test_real_text_never_shows_half_a_character(kind: str, text: str, cuts: list[int]) -> None:
    text = text.replace("\ufffd", "").replace("\u2581", "")
    ids = TOKENIZERS[kind].encode(text, add_special_tokens=False).ids
    detokenizer = Detokenizer(TABLES[kind], (), False)
    so_far = ""
    for portion in _portions(ids, cuts):
        so_far += detokenizer.push(portion)
        assert text.startswith(so_far)
    assert so_far + detokenizer.flush() == text


@KINDS
@given(prompt=IDS, ids=IDS)
@example(prompt=[197, 0, 0, 0, 0], ids=[])  # half a character, then tokens without bytes
@settings(max_examples=300)
def test_text_after_a_prompt_is_the_rest_of_the_text(
    kind: str, prompt: list[int], ids: list[int]
) -> None:
    before = Detokenizer(TABLES[kind])
    before.push(prompt)
    want = before.push(ids) + before.flush()
    after = Detokenizer(TABLES[kind], prompt)
    assert after.push(ids) + after.flush() == want


def test_leading_space_goes_only_at_the_start_of_the_text() -> None:
    tokenizer = TOKENIZERS["sentencepiece"]
    ids = tokenizer.encode("the dog", add_special_tokens=False).ids
    assert _whole("sentencepiece", ids, True) == "the dog"
    after_bos = Detokenizer(TABLES["sentencepiece"], [1])
    assert after_bos.push(ids) == "the dog"
    after_text = Detokenizer(TABLES["sentencepiece"], ids)
    assert after_text.push(ids) == " the dog"
    with_empty_first = Detokenizer(TABLES["sentencepiece"])
    assert with_empty_first.push([]) + with_empty_first.push(ids) == "the dog"


def test_a_character_begun_by_the_prompt_is_finished() -> None:
    table = TABLES["byte_level"]
    ids = {table[index]: index for index in range(450)}
    euro = [ids[bytes([byte])] for byte in "€".encode()]
    detokenizer = Detokenizer(table, euro[:2])
    assert detokenizer.push(euro[2:]) == "€"


def test_unfinished_characters_are_flushed_as_one_replacement() -> None:
    table = TABLES["sentencepiece"]
    assert table[3 + 0xE2] == b"\xe2"
    detokenizer = Detokenizer(table)
    assert detokenizer.push([3 + 0xE2, 3 + 0x82]) == ""
    assert detokenizer.flush() == "\ufffd"
    broken = Detokenizer(table)
    assert broken.push([3 + 0xE2, 3 + ord("a")]) == "\ufffda"


def test_control_tokens_are_left_out_or_spelt_out() -> None:
    assert _whole("byte_level", [1, 2], True) == ""
    assert _whole("byte_level", [1, 2], False) == "<|im_start|><|im_end|>"
    assert TABLES["byte_level"].is_special(1)
    assert not TABLES["byte_level"].is_special(5)


def test_word_pieces() -> None:
    tokenizer = Tokenizer(WordPiece({"[UNK]": 0, "un": 1, "##aff": 2, "dog": 3}, unk_token="[UNK]"))
    tokenizer.decoder = decoders.WordPiece()
    detokenizer = Detokenizer(TokenBytes(tokenizer))
    assert detokenizer.push([1]) + detokenizer.push([2, 3]) == "unaff dog"


def test_an_unknown_decoder_is_refused() -> None:
    tokenizer = Tokenizer(BPE())
    with pytest.raises(RenderError, match="cannot be decoded"):
        TokenBytes(tokenizer)
    tokenizer.decoder = decoders.CTC()
    with pytest.raises(RenderError, match="CTC"):
        TokenBytes(tokenizer)
    assert json.loads(tokenizer.decoder.__getstate__())["type"] == "CTC"
