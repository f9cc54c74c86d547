"""A tokenizer for the tiny models, whose text has one token for each word."""

from __future__ import annotations

from pathlib import Path

from tokenizers import Tokenizer, decoders
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import TemplateProcessing

_SPECIAL = {"[PAD]": 0, "[CLS]": 1, "[SEP]": 2, "[UNK]": 3}
_WORDS = 256


def save_tokenizer(directory: Path) -> Tokenizer:
    """Write tokenizer.json. Words are w4, w5, ...; texts of a pair have different types."""
    words = {f"w{i}": i for i in range(len(_SPECIAL), _WORDS)}
    tokenizer = Tokenizer(WordLevel(_SPECIAL | words, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.add_special_tokens(list(_SPECIAL))
    tokenizer.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 1), ("[SEP]", 2)],
    )
    tokenizer.save(str(directory / "tokenizer.json"))
    return tokenizer
