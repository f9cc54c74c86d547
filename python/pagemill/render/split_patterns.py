"""How byte-level BPE vocabularies cut text before merging: GGUF's `tokenizer.ggml.pre`.

A vocabulary's merges were learned on text cut in one way and give other ids on text cut in another,
so an unknown name is an error and not a guess. The patterns are those in the models' own
`tokenizer.json`; llama.cpp's `llama-vocab.cpp` maps the names.
"""

from dataclasses import dataclass, replace

_LETTERS_THEN_REST = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"


@dataclass(frozen=True, slots=True)
class SplitRule:
    """One way to cut text.

    `pattern`: what one piece looks like; None is GPT-2's own pattern, which the tokenizer library
    has built in. `single_digits`: each digit is cut out first. `whole_words`: a piece that is in
    the vocabulary is taken whole, merges or no merges. `nfc`: text is normalized first.
    """

    pattern: str | None = None
    single_digits: bool = False
    whole_words: bool = False
    nfc: bool = False


_GPT2 = SplitRule()
_DIGITS = SplitRule(single_digits=True)
_LLAMA3 = SplitRule(
    pattern=rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{{1,3}}|{_LETTERS_THEN_REST}",
    whole_words=True,
)
_DBRX = replace(_LLAMA3, whole_words=False)
_QWEN2 = SplitRule(
    pattern=rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}|{_LETTERS_THEN_REST}",
    nfc=True,
)
# Words end where an upper-case letter follows a lower-case one, and contractions belong to them.
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_GPT4O = SplitRule(
    pattern=rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+{_CONTRACTIONS}?"
    rf"|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*{_CONTRACTIONS}?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
)

SPLIT_RULES = {
    "chatglm-bpe": _DBRX,
    "codeshell": _DIGITS,
    "command-r": _DIGITS,
    "dbrx": _DBRX,
    "deepseek-r1-qwen": _QWEN2,
    "default": _GPT2,
    "exaone": _DIGITS,
    "falcon-h1": _LLAMA3,
    "falcon3": _LLAMA3,
    "glm4": _DBRX,
    "gpt-2": _GPT2,
    "gpt-4o": _GPT4O,
    "lfm2": _LLAMA3,
    "llama-bpe": _LLAMA3,
    "llama-v3": _LLAMA3,
    "llama3": _LLAMA3,
    "mpt": _GPT2,
    "olmo": _GPT2,
    "phi-2": _GPT2,
    "qwen2": _QWEN2,
    "refact": _DIGITS,
    "smaug-bpe": _DBRX,
    "smollm": _DIGITS,
    "starcoder": _DIGITS,
}
