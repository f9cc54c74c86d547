"""How byte-level BPE vocabularies cut text before merging: GGUF's `tokenizer.ggml.pre`.

A vocabulary's merges were learned on text cut in one way and give other ids on text cut in another,
so an unknown name is an error and not a guess. The patterns are those in the models' own
`tokenizer.json`; llama.cpp's `llama-vocab.cpp` maps the names.
"""

from dataclasses import dataclass, replace

_LETTERS_THEN_REST = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"


# What ByteLevel's own rule is in other rules that have steps before and behind it.
_GPT2_PATTERN = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
# Words end where an upper-case letter follows a lower-case one.
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_NOT_HAN = r"&&[^\p{Han}]]"
# Letters with cases, of the scripts that DeepSeek's first vocabulary lists.
_CASED = (
    "A-Za-z\xb5\xc0-\xd6\xd8-\xf6\xf8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-\u02af\u0370-\u0373"
    "\u0376-\u0377\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1\u03a3-\u03f5"
    "\u03f7-\u0481\u048a-\u052f\u0531-\u0556\u10a0-\u10c5\u13a0-\u13f5\u13f8-\u13fd\u1c90-\u1cba"
    "\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77\u1d79-\u1d9a\u1e00-\u1f15\u1f18-\u1f1d\u1f20-\u1f45"
    "\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b\u1f5d\u1f5f-\u1f7d\u1f80-\u1fb4\u1fb6-\u1fbc\u1fbe"
    "\u1fc2-\u1fc4\u1fc6-\u1fcc\u1fd0-\u1fd3\u1fd6-\u1fdb\u1fe0-\u1fec\u1ff2-\u1ff4\u1ff6-\u1ffc"
    "\u2102\u2107\u210a-\u2113\u2115\u2119-\u211d\u2124\u2126\u2128\u212a-\u212d\u212f-\u2134"
    "\u2139\u213c-\u213f\u2145-\u2149\u214e\u2183-\u2184\u2c00-\u2c7b\u2c7e-\u2ce4\u2ceb-\u2cee"
    "\u2cf2-\u2cf3\ua640-\ua66d\ua680-\ua69b\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e\uab70-\uabbf"
    "\ufb00-\ufb06\ufb13-\ufb17\uff21-\uff3a\uff41-\uff5a\U00010400-\U0001044f"
    "\U000104b0-\U000104d3\U000104d8-\U000104fb\U00010c80-\U00010cb2\U00010cc0-\U00010cf2"
    "\U000118a0-\U000118df\U0001e900-\U0001e943"
)
_EAST_ASIAN = "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"


@dataclass(frozen=True, slots=True)
class SplitRule:
    """One way to cut text.

    `patterns`: what pieces look like; each cuts what the one before it left or cut out. Without
    one, text is cut by GPT-2's own pattern, which the tokenizer library has built in.
    `single_digits`: each digit is cut out, before GPT-2's pattern or behind others. `whole_words`:
    a piece that is in the vocabulary is taken whole, merges or no merges. `nfc`: text is normalized
    first.
    """

    patterns: tuple[str, ...] = ()
    single_digits: bool = False
    whole_words: bool = False
    nfc: bool = False


def _words(words: str, digits: str, rest: str = _LETTERS_THEN_REST) -> str:
    return rf"{words}|\p{{N}}{digits}|{rest}"


def _cased_words(upper: str, lower: str, end: str = "") -> str:
    before = r"[^\r\n\p{L}\p{N}]?"
    return rf"{before}{upper}*{lower}+{end}|{before}{upper}+{lower}*{end}"


_LETTERS = rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+"
_SLASHES = r" ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"

_GPT2 = SplitRule()
_DIGITS = SplitRule(single_digits=True)
_LLAMA3 = SplitRule((_words(_LETTERS, "{1,3}"),), whole_words=True)
_DBRX = replace(_LLAMA3, whole_words=False)
_GROK2 = SplitRule((_words(_LETTERS, ""),))
_QWEN2 = replace(_GROK2, nfc=True)
_QWEN3_5 = SplitRule(
    (
        rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}"
        r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    ),
    nfc=True,
)
_SEED = SplitRule(
    (_words(_LETTERS, "", r" ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+"),),
)
# Contractions belong to the words before them.
_GPT4O = SplitRule(
    (_words(_cased_words(_UPPER, _LOWER, f"{_CONTRACTIONS}?"), "{1,3}", _SLASHES),),
)
_TEKKEN = SplitRule((_words(_cased_words(_UPPER, _LOWER), "", _SLASHES),), whole_words=True)
_KIMI = SplitRule(
    (
        r"[\p{Han}]+|"
        + _words(
            _cased_words(_UPPER[:-1] + _NOT_HAN, _LOWER[:-1] + _NOT_HAN, f"{_CONTRACTIONS}?"),
            "{1,3}",
        ),
    ),
)
_DEEPSEEK = SplitRule(
    (
        r"[\r\n]",
        rf"\s?[{_CASED}]+",
        "\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+",
        r"\s+$",
        _EAST_ASIAN,
    ),
    single_digits=True,
)
_DEEPSEEK_CODER = SplitRule(
    (r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", _EAST_ASIAN), single_digits=True
)
_DEEPSEEK_V3 = SplitRule(
    (
        r"\p{N}{1,3}",
        "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
        r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
        r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    ),
)
_FALCON = SplitRule((r"[\p{P}$+<=>^`|~]+", _GPT2_PATTERN, r"\p{N}+", "[0-9][0-9][0-9]"))
_BLOOM = SplitRule((" ?[^(\\s|.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c)]+",))

SPLIT_RULES = {
    "a.x-4.0": _GPT2,
    "bailingmoe": _GROK2,
    "bailingmoe2": _GROK2,
    "bloom": _BLOOM,
    "chatglm-bpe": _DBRX,
    "codeshell": _DIGITS,
    "command-r": _DIGITS,
    "dbrx": _DBRX,
    "deepseek-coder": _DEEPSEEK_CODER,
    "deepseek-llm": _DEEPSEEK,
    "deepseek-r1-qwen": _QWEN2,
    "deepseek-v3": _DEEPSEEK_V3,
    "default": _GPT2,
    "exaone": _DIGITS,
    "exaone4": _GPT2,
    "falcon": _FALCON,
    "falcon-h1": _LLAMA3,
    "falcon3": _LLAMA3,
    "gigachat": _GPT2,
    "glm4": _DBRX,
    "gpt-2": _GPT2,
    "gpt-4o": _GPT4O,
    "gpt3-finnish": _BLOOM,
    "granite-docling": _GPT2,
    "grok-2": _GROK2,
    "hunyuan": _GROK2,
    "hunyuan-dense": _DEEPSEEK_V3,
    "jais": _GPT2,
    "jina-de": _GPT2,
    "jina-es": _GPT2,
    "jina-v1-en": _GPT2,
    "jina-v2-code": _GPT2,
    "jina-v2-de": _GPT2,
    "jina-v2-es": _GPT2,
    "joyai-llm": _DEEPSEEK_V3,
    "kanana2": _GPT4O,
    "kimi-k2": _KIMI,
    "lfm2": _LLAMA3,
    "llama-bpe": _LLAMA3,
    "llama-v3": _LLAMA3,
    "llama3": _LLAMA3,
    "llama4": _GPT4O,
    "megrez": _QWEN2,
    "mellum": _GPT2,
    "midm-2.0": _LLAMA3,
    "minerva-7b": _DIGITS,
    "minimax-m2": _GPT4O,
    "modern-bert": _GPT2,
    "mpt": _GPT2,
    "olmo": _GPT2,
    "phi-2": _GPT2,
    "pixtral": _LLAMA3,
    "poro-chat": _BLOOM,
    "qwen2": _QWEN2,
    "qwen35": _QWEN3_5,
    "refact": _DIGITS,
    "roberta-bpe": _GPT2,
    "seed-coder": _SEED,
    "smaug-bpe": _DBRX,
    "smollm": _DIGITS,
    "solar-open": _GROK2,
    "stablelm2": _GROK2,
    "starcoder": _DIGITS,
    "tekken": _TEKKEN,
    "trillion": _GPT2,
}
