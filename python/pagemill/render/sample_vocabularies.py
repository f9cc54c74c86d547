"""Small vocabularies for tests, as the metadata of GGUF files, learned from a few sentences."""

import io
import json
from typing import Any

from tokenizers import Tokenizer, pre_tokenizers, trainers
from tokenizers.models import BPE

TEXT = [
    "The quick brown fox jumps over the lazy dog, and then it jumps over the other lazy dog again.",
    "In 2024 there were 365 + 1 days; the 29th of February was one of them. 1234567890",
    "def factorial(n):\n    return 1 if n == 0 else n * factorial(n - 1)\n",
    "Größe, naïveté, crème brûlée. Привет, мир! 你好,世界。こんにちは世界 😀 🎉",
    "    indented   text\twith\ttabs\n\n\nand blank lines",
]
CHATML = (
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n'"
    " + message['content'] + '<|im_end|>' + '\\n'}}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)


def byte_level_metadata(pre: str = "smollm") -> dict[str, Any]:
    """Byte-level BPE of some 450 tokens with ChatML's control tokens, ids 0 to 2."""
    tokenizer = Tokenizer(BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(False)]
    )
    control = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    trainer = trainers.BpeTrainer(
        vocab_size=450,
        special_tokens=control,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(TEXT * 4, trainer)
    model = json.loads(tokenizer.to_str())["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].__getitem__)
    return {
        "general.architecture": "llama",
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": pre,
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [3] * 3 + [1] * (len(tokens) - 3),
        "tokenizer.ggml.merges": [" ".join(pair) for pair in model["merges"]],
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.add_bos_token": False,
        "tokenizer.chat_template": CHATML,
    }


def sentencepiece_model(add_dummy_prefix: bool = True, *, model_type: str = "bpe") -> bytes:
    """A SentencePiece model, as its own library trains it: "bpe" of 420 pieces with byte fallback,
    or "unigram" of 100, for which these sentences suffice."""
    import sentencepiece

    model, is_bpe = io.BytesIO(), model_type == "bpe"
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXT * 4),
        model_writer=model,
        model_type=model_type,
        vocab_size=420 if is_bpe else 100,
        byte_fallback=is_bpe,
        character_coverage=0.98,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        add_dummy_prefix=add_dummy_prefix,
        minloglevel=2,
    )
    return model.getvalue()


def sentencepiece_metadata(model: bytes, add_dummy_prefix: bool = True) -> dict[str, Any]:
    """The same model as a GGUF file describes it."""
    import sentencepiece

    pieces = sentencepiece.SentencePieceProcessor(model_proto=model)
    ids = range(pieces.vocab_size())

    def kind(index: int) -> int:
        if pieces.is_byte(index):
            return 6
        return 3 if pieces.is_control(index) else 2 if pieces.is_unknown(index) else 1

    return {
        "general.architecture": "llama",
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": [pieces.id_to_piece(index) for index in ids],
        "tokenizer.ggml.scores": [pieces.get_score(index) for index in ids],
        "tokenizer.ggml.token_type": [kind(index) for index in ids],
        "tokenizer.ggml.unknown_token_id": pieces.unk_id(),
        "tokenizer.ggml.bos_token_id": pieces.bos_id(),
        "tokenizer.ggml.eos_token_id": pieces.eos_id(),
        "tokenizer.ggml.add_space_prefix": add_dummy_prefix,
    }
