"""What encoders and decoders of text have in common: the traits, and how a decoder begins."""

from __future__ import annotations

from pagemill.inputs.encoder_text import EncoderText
from pagemill.models.base import LIMIT, Config, MediaTraits, ModelConfigError, ModelTraits
from pagemill.models.config_keys import positive_int, token_id


def text_traits(
    config: Config, vocab_size: int, width: int, encoder_tokens: int, decoder_tokens: int
) -> ModelTraits:
    """Those of a model whose encoder has `encoder_tokens` positions and whose decoder has
    `decoder_tokens`. The decoder begins with `decoder_start_token_id`, and with
    `forced_bos_token_id` behind it, if the configuration has one.

    Raises:
        ModelConfigError: the configuration has no such token.
    """
    start = [token_id(config, "decoder_start_token_id", vocab_size)]
    if config.get("forced_bos_token_id") is not None:
        start.append(token_id(config, "forced_bos_token_id", vocab_size))
    if decoder_tokens <= len(start):
        raise ModelConfigError(f"a decoder of {decoder_tokens} positions has none to generate in")
    # No longer text can have a place in a context.
    encoder_tokens = min(encoder_tokens, positive_int(config, LIMIT, encoder_tokens))
    text = EncoderText(
        vocab_size,
        token_id(config, "pad_token_id", vocab_size),
        tuple(start),
        encoder_tokens,
        decoder_tokens,
    )
    media = MediaTraits(
        rows=1,
        channels=1,
        tokens=1,
        width=width,
        placeholders={},
        any_size=True,
        most_tokens=encoder_tokens,
        encoder_decoder=True,
        text_rows=True,
        text=text,
    )
    longest = encoder_tokens + decoder_tokens
    return ModelTraits(vocab_size, width, longest, causal=True, generates=True, media=media)
