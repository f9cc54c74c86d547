"""Tokenizers of encoders from the metadata of GGUF files: "bert", WordPiece, and "t5", the unigram
models of SentencePiece."""

from collections.abc import Mapping, Sequence
from typing import Any

from tokenizers import Regex, Tokenizer, decoders, normalizers, pre_tokenizers, processors
from tokenizers.models import Unigram, WordPiece

from pagemill.render.errors import RenderError
from pagemill.render.json_values import as_array

_CONTROL = 3  # of tokenizer.ggml.token_type
_SPACE = "\u2581"  # SentencePiece's visible space
_INSIDE = "##"  # in front of WordPiece's pieces inside of words
_LONGEST_WORD = 100  # characters, as in BERT


def wordpiece(metadata: Mapping[str, Any], tokens: Sequence[str]) -> tuple[Tokenizer, list[str]]:
    """The tokenizer of kind "bert", and its pieces as BERT spells them: files have a visible space
    in front of those that begin words instead of signs in front of the others.

    Raises:
      RenderError: the metadata lacks a token.
    """
    kinds = as_array(metadata.get("tokenizer.ggml.token_type")) or []
    control = {index for index, kind in enumerate(kinds) if kind == _CONTROL}
    own = [
        token
        if index in control
        else token.removeprefix(_SPACE)
        if token.startswith(_SPACE)
        else _INSIDE + token
        for index, token in enumerate(tokens)
    ]
    # There is no key for it: a vocabulary of lower case has nothing else.
    lowercase = not any(
        token != token.lower() for index, token in enumerate(own) if index not in control
    )
    unknown = _token(metadata, own, ("unknown",), "[UNK]")
    tokenizer = Tokenizer(
        WordPiece(
            {token: index for index, token in enumerate(own)},
            unk_token=own[unknown],
            max_input_chars_per_word=_LONGEST_WORD,
        )
    )
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece(_INSIDE)
    begin = _token(metadata, own, ("cls", "bos"), "[CLS]")
    end = _token(metadata, own, ("seperator", "eos"), "[SEP]")  # GGUF's spelling
    tokenizer.post_processor = processors.TemplateProcessing(
        single=["begin", "$A", "end"],
        pair=["begin", "$A", "end", "$B:1", "end:1"],
        special_tokens=[piece("begin", begin, own), piece("end", end, own)],
    )
    return tokenizer, own


def unigram(metadata: Mapping[str, Any], tokens: Sequence[str]) -> Tokenizer:
    """The tokenizer of kind "t5".

    Raises:
      RenderError: the metadata is incomplete or inconsistent.
    """
    scores = as_array(metadata.get("tokenizer.ggml.scores"))
    if scores is None or len(scores) != len(tokens):
        raise RenderError("the GGUF file's tokenizer.ggml.scores is missing or too short")
    unknown = _token(metadata, tokens, ("unknown",), "<unk>")
    charsmap = as_array(metadata.get("tokenizer.ggml.precompiled_charsmap"))
    try:
        tokenizer = Tokenizer(Unigram(list(zip(tokens, scores, strict=True)), unknown))
        steps: list[Any] = []
        if charsmap:
            steps.append(normalizers.Precompiled(bytes(byte & 255 for byte in charsmap)))
        if metadata.get("tokenizer.ggml.remove_extra_whitespaces", True):
            steps += [normalizers.Strip(), normalizers.Replace(Regex(" {2,}"), " ")]
        tokenizer.normalizer = normalizers.Sequence(steps)
    except Exception as error:  # noqa: BLE001  the library raises bare Exception
        raise RenderError(f"the GGUF file's tokenizer is inconsistent: {error}") from None
    prefix = "always" if metadata.get("tokenizer.ggml.add_space_prefix", True) else "never"
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(_SPACE, prepend_scheme=prefix)
    tokenizer.decoder = decoders.Metaspace(_SPACE, prepend_scheme=prefix)
    end = _token(metadata, tokens, ("eos",), "</s>")
    used, front = [piece("end", end, tokens)], list[str]()
    if metadata.get("tokenizer.ggml.add_bos_token", "<s>" in tokens):  # T5 has none
        begin = _token(metadata, tokens, ("bos",), "<s>")
        used.append(piece("begin", begin, tokens))
        front = ["begin"]
    between = ["end", "end"] if front else ["end"]  # XLM-RoBERTa's have two
    tokenizer.post_processor = processors.TemplateProcessing(
        single=[*front, "$A", "end"],
        pair=[*front, "$A", *between, "$B", "end"],
        special_tokens=used,
    )
    return tokenizer


def piece(name: str, index: int, tokens: Sequence[str]) -> dict[str, object]:
    """The token `index` as `name` in a template: its own text may be anything, also what a template
    takes for a place of a text ("$B") or a type ("a:1")."""
    return {"id": name, "ids": [index], "tokens": [tokens[index]]}


def _token(
    metadata: Mapping[str, Any], tokens: Sequence[str], roles: Sequence[str], usual: str
) -> int:
    """The id of the token of the first of `roles` that the file states, or of `usual`."""
    for role in roles:
        index: Any = metadata.get(f"tokenizer.ggml.{role}_token_id")
        if index is None:
            continue
        if not isinstance(index, int) or not 0 <= index < len(tokens):
            raise RenderError(f"the GGUF file names token {index!r}, but has {len(tokens)} tokens")
        return index
    if usual not in tokens:
        key = f"tokenizer.ggml.{roles[-1]}_token_id"
        raise RenderError(f"the GGUF file has neither {key} nor a token {usual}")
    return tokens.index(usual)
