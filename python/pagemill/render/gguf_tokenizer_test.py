"""Tests of pagemill.render.gguf_tokenizer on small vocabularies."""

import re
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, normalizers, pre_tokenizers, trainers
from tokenizers.models import WordPiece

from pagemill.render.errors import RenderError
from pagemill.render.gguf_tokenizer import tokenizer_from_gguf
from pagemill.render.sample_vocabularies import (
    TEXT,
    byte_level_metadata,
    sentencepiece_metadata,
    sentencepiece_model,
)
from pagemill.render.split_patterns import SPLIT_RULES

BYTE_LEVEL = byte_level_metadata()
MODELS = {prefix: sentencepiece_model(prefix) for prefix in (True, False)}


@given(st.text())
@settings(max_examples=300)
def test_byte_level_text_round_trips(text: str) -> None:
    tokenizer = tokenizer_from_gguf(BYTE_LEVEL)
    assert tokenizer.decode(tokenizer.encode(text).ids, skip_special_tokens=False) == text


def test_merges_are_used() -> None:
    tokenizer = tokenizer_from_gguf(BYTE_LEVEL)
    for text in TEXT[:3]:
        assert len(tokenizer.encode(text).ids) < 0.7 * len(text)


@pytest.mark.parametrize(
    ("pre", "text", "pieces"),
    [
        ("smollm", "a  12 b", ["a", "  ", "1", "2", " b"]),
        ("gpt-2", "a  12 b", ["a", " ", " 12", " b"]),
        ("qwen2", "a  12 b'LL\n\n x", ["a", " ", " ", "1", "2", " b", "'LL", "\n\n", " x"]),
        ("bailingmoe2", "a  12 b'LL\n\n x", ["a", " ", " ", "1", "2", " b", "'LL", "\n\n", " x"]),
        ("gpt-4o", "aBc it's 1234 //\n", ["a", "Bc", " it's", " ", "123", "4", " //\n"]),
        ("llama-bpe", "12345, it's", ["123", "45", ",", " it", "'s"]),
        ("bloom", "a bc, d(e", ["a", " bc", ",", " d", "(", "e"]),
        ("deepseek-coder", "a bc, 12\n字x", ["a", " bc", ",", " ", "1", "2", "\n", "字", "x"]),
        ("deepseek-llm", "a bc, 12\n字x", ["a", " bc", ",", " ", "1", "2", "\n", "字", "x"]),
        ("deepseek-v3", "a bc.de 1234字 y", ["a", " bc", ".de", " ", "123", "4", "字", " y"]),
        ("falcon", "a.b 1234 c", ["a", ".", "b", " ", "123", "4", " c"]),
        ("kimi-k2", "aBc字d it's 1234", ["a", "Bc", "字", "d", " it's", " ", "123", "4"]),
        ("qwen35", "e\u0301a 12", ["e\u0301a", " ", "1", "2"]),
        ("seed-coder", "a,\nb", ["a", ",", "\n", "b"]),
        ("tekken", "aBc it's 12 //\n", ["a", "Bc", " it", "'s", " ", "1", "2", " //\n"]),
    ],
)
def test_text_is_cut_as_the_file_says(pre: str, text: str, pieces: list[str]) -> None:
    tokenizer = tokenizer_from_gguf({**BYTE_LEVEL, "tokenizer.ggml.pre": pre})
    assert tokenizer.pre_tokenizer is not None
    cut = tokenizer.pre_tokenizer.pre_tokenize_str(text)
    assert [text[start:end] for _, (start, end) in cut] == pieces


@pytest.mark.parametrize("pre", sorted(SPLIT_RULES))
def test_no_way_of_cutting_loses_text(pre: str) -> None:
    tokenizer = tokenizer_from_gguf({**BYTE_LEVEL, "tokenizer.ggml.pre": pre})
    for text in (*TEXT, " \t\r\n \u3000x", "'S 'll", "\u0660\u0661\u00bd"):
        assert tokenizer.decode(tokenizer.encode(text).ids) == text


def test_control_tokens_in_text() -> None:
    ids = tokenizer_from_gguf(BYTE_LEVEL).encode("<|im_start|>a<|im_end|>").ids
    assert (ids[0], ids[-1]) == (1, 2)
    assert len(ids) == 3


@pytest.mark.parametrize("prefix", [True, False])
@given(text=st.one_of(st.text(), st.text("aehlotz \u2581\n12", max_size=60), st.sampled_from(TEXT)))
@settings(max_examples=400)
def test_sentencepiece_ids_equal_the_librarys_own(prefix: bool, text: str) -> None:
    # SentencePiece itself drops NUL; and it treats its space symbol as a space, like this one.
    # Control tokens are read in `test_control_tokens_in_text`.
    text = re.sub("\0|<s>|</s>|<unk>", "", text)
    theirs = sentencepiece.SentencePieceProcessor(model_proto=MODELS[prefix])
    ours = _cached(prefix)
    assert ours.encode(text, add_special_tokens=False).ids == theirs.encode(text)


_CACHE: dict[bool, Tokenizer] = {}


def _cached(prefix: bool) -> Tokenizer:
    if prefix not in _CACHE:
        _CACHE[prefix] = tokenizer_from_gguf(sentencepiece_metadata(MODELS[prefix], prefix))
    return _CACHE[prefix]


def test_begin_and_end_follow_the_flags() -> None:
    metadata = sentencepiece_metadata(MODELS[True])
    assert tokenizer_from_gguf(metadata).encode("the").ids[0] == 1  # llama: BOS by default
    metadata["tokenizer.ggml.add_eos_token"] = True
    ids = tokenizer_from_gguf(metadata).encode("the").ids
    assert (ids[0], ids[-1]) == (1, 2)
    metadata["tokenizer.ggml.add_bos_token"] = False
    ids = tokenizer_from_gguf(metadata).encode("the").ids
    assert ids[0] != 1
    assert ids[-1] == 2
    assert tokenizer_from_gguf(BYTE_LEVEL).encode("the").ids[0] != 1


@pytest.mark.parametrize(("architecture", "between"), [("bert", [2, 2]), ("modern-bert", [2])])
def test_pairs_of_encoders(architecture: str, between: list[int]) -> None:
    """As RoBERTa and ModernBERT write them."""
    metadata = BYTE_LEVEL | {
        "general.architecture": architecture,
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.add_bos_token": True,
        "tokenizer.ggml.add_eos_token": True,
    }
    tokenizer = tokenizer_from_gguf(metadata)
    first, second = (tokenizer.encode(t, add_special_tokens=False).ids for t in ("the", "the a"))
    assert tokenizer.encode("the").ids == [1, *first, 2]
    assert tokenizer.encode("the", "the a").ids == [1, *first, *between, *second, 2]


@pytest.mark.parametrize("text", ["$A", "$B", "x:1", ":"])
def test_begins_that_a_template_would_take_for_something_else(text: str) -> None:
    tokens = list(BYTE_LEVEL["tokenizer.ggml.tokens"])
    tokens[1] = text
    metadata = BYTE_LEVEL | {
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.add_bos_token": True,
    }
    encoding = tokenizer_from_gguf(metadata).encode("the")
    plain = tokenizer_from_gguf(BYTE_LEVEL).encode("the")
    assert encoding.ids == [1, *plain.ids] and encoding.tokens == [text, *plain.tokens]


def test_gemma_ranks_by_place_and_respells_runs_of_spaces() -> None:
    tokens = ["<pad>", "<eos>", "<bos>", "<unk>", "\u2581", "a", "b", "  ", "ab", "a\u2581", "ba"]
    metadata: dict[str, Any] = {
        "general.architecture": "gemma3",
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [3, 3, 3, 3, 1, 1, 1, 4, 1, 1, 1],
        "tokenizer.ggml.unknown_token_id": 3,
        "tokenizer.ggml.bos_token_id": 2,
        "tokenizer.ggml.add_bos_token": True,
    }
    tokenizer = tokenizer_from_gguf(metadata)
    assert tokenizer.encode("a  ba b").ids == [2, 5, 7, 6, 9, 6]  # "a\u2581" before "ba"
    assert tokenizer.encode("aba").ids == [2, 8, 5]  # "ab" is listed before "ba"
    assert tokenizer.decode([5, 7, 8]) == "a  ab"


@pytest.mark.parametrize("lowercase", [True, False])
def test_wordpiece_ids_equal_the_librarys_own(lowercase: bool) -> None:
    theirs = Tokenizer(WordPiece(unk_token="[UNK]"))
    theirs.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    theirs.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    theirs.decoder = decoders.WordPiece()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    trainer = trainers.WordPieceTrainer(vocab_size=300, special_tokens=special, show_progress=False)
    theirs.train_from_iterator(TEXT, trainer)
    pieces = [theirs.id_to_token(i) for i in range(theirs.get_vocab_size())]
    # As converters spell them.
    stored = [p.removeprefix("##") if p.startswith("##") else "\u2581" + p for p in pieces[5:]]
    metadata: dict[str, Any] = {
        "general.architecture": "bert",
        "tokenizer.ggml.model": "bert",
        "tokenizer.ggml.tokens": [*special, *stored],
        "tokenizer.ggml.token_type": [3] * 5 + [1] * len(stored),
        "tokenizer.ggml.unknown_token_id": 1,
        "tokenizer.ggml.seperator_token_id": 3,
    }
    ours = tokenizer_from_gguf(metadata)
    for text in (*TEXT, "unseen Words \u2603 na\u00efve\tIt's"):
        ids = theirs.encode(text).ids
        assert ours.encode(text).ids == [2, *ids, 3]
        assert ours.decode(ids) == theirs.decode(ids)
    pair = ours.encode("a b", "c [MASK]")
    assert pair.tokens == ["[CLS]", "a", "b", "[SEP]", "c", "[MASK]", "[SEP]"]
    assert pair.type_ids == [0, 0, 0, 0, 1, 1, 1]


def test_unigram_ids_equal_sentencepieces_own() -> None:
    model = sentencepiece_model(model_type="unigram")
    theirs = sentencepiece.SentencePieceProcessor(model_proto=model)
    metadata = sentencepiece_metadata(model) | {
        "tokenizer.ggml.model": "t5",
        "tokenizer.ggml.remove_extra_whitespaces": False,
    }
    ours = tokenizer_from_gguf(metadata)
    for text in TEXT[:3]:
        assert ours.encode(text).ids == [1, *theirs.encode(text), 2]
    first, second = theirs.encode("the"), theirs.encode("dog")
    assert ours.encode("the", "dog").ids == [1, *first, 2, 2, *second, 2]
    metadata["tokenizer.ggml.remove_extra_whitespaces"] = True
    assert tokenizer_from_gguf(metadata).encode(" a  b ").ids == ours.encode("a b").ids
    metadata["tokenizer.ggml.precompiled_charsmap"] = [1, 2, 3]
    with pytest.raises(RenderError, match="inconsistent"):
        tokenizer_from_gguf(metadata)


def test_merges_that_were_derived_are_kept(tmp_path: Path) -> None:
    metadata = sentencepiece_metadata(MODELS[True], True)
    before = tokenizer_from_gguf(metadata, tmp_path)
    assert len(list((tmp_path / "merges").iterdir())) == 1
    assert tokenizer_from_gguf(metadata, tmp_path).to_str() == before.to_str()
    assert tokenizer_from_gguf(metadata).to_str() == before.to_str()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"tokenizer.ggml.model": "rwkv"}, "'rwkv'; supported: bert, gemma4, gpt2, llama, t5"),
        ({"tokenizer.ggml.model": "bert"}, "neither tokenizer.ggml.unknown_token_id nor .* .UNK."),
        ({"tokenizer.ggml.model": "t5"}, "scores is missing"),
        ({"tokenizer.ggml.pre": "martian"}, "'martian' is unknown; known: .*smollm"),
        ({"tokenizer.ggml.tokens": None}, "holds no tokenizer"),
        ({"tokenizer.ggml.tokens": []}, "holds no tokenizer"),
        ({"tokenizer.ggml.tokens": [1, 2]}, "not strings"),
        ({"tokenizer.ggml.merges": None}, "merges is missing"),
        ({"tokenizer.ggml.merges": ["ab"]}, "merges holds 'ab'"),
        ({"tokenizer.ggml.merges": ["\u2603 \u2603"]}, "inconsistent"),
        ({"tokenizer.ggml.eos_token_id": 10**6}, "names token 1000000"),
        ({"tokenizer.ggml.eos_token_id": -1}, "names token -1"),
    ],
)
def test_bad_metadata_is_refused(change: dict[str, Any], words: str) -> None:
    with pytest.raises(RenderError, match=words):
        tokenizer_from_gguf({**BYTE_LEVEL, **change})


def test_bad_scores_are_refused() -> None:
    metadata = sentencepiece_metadata(MODELS[True])
    for scores in (None, [0.0], [float("nan")] * len(metadata["tokenizer.ggml.tokens"])):
        with pytest.raises(RenderError, match="scores"):
            tokenizer_from_gguf({**metadata, "tokenizer.ggml.scores": scores})
