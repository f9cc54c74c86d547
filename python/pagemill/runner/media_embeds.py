"""Media given as rows of embeddings: items of one more encoder, which returns its input.

traits = media_embeds_traits([encoder.traits for encoder in encoders_of(model)], "LlavaModel")
program = identity_program(traits)     # prompt_embeds.py
"""

from __future__ import annotations

from collections.abc import Sequence

from pagemill.inputs.media_kind import MediaKind
from pagemill.models.base import MediaTraits, ModelConfigError

_FLAG = "--enable-mm-embeds"


def media_embeds_traits(
    encoders: Sequence[MediaTraits], architecture: str, flag: str = _FLAG
) -> MediaTraits:
    """Items of any number of rows, one for each token, in place of those of any of `encoders`.
    `flag` is the option for which they are wanted.

    Raises:
        ModelConfigError: there is no encoder, or one makes more than rows of media.
    """
    placeholders: dict[MediaKind, int] = {}
    for each in encoders:
        if each.encoder_decoder or each.text is not None:
            raise ModelConfigError(
                f"{architecture} has an encoder that its decoder attends to: leave out {flag}"
            )
        if each.encoded_tokens:
            raise ModelConfigError(
                f"{architecture} has tokens beside media that its encoder computes, too: leave out"
                f" {flag}"
            )
        placeholders |= each.placeholders
    if not placeholders:
        raise ModelConfigError(
            f"{architecture} takes no media, or --limit-mm-per-prompt allows none: leave out {flag}"
        )
    width, grid = encoders[0].width, any(each.token_grid for each in encoders)
    most = [each.most_tokens if each.any_size else each.tokens for each in encoders]
    return MediaTraits(
        rows=1,
        channels=width,
        tokens=1,
        width=width,
        placeholders=placeholders,
        any_size=True,
        grid=grid,
        token_grid=grid,
        item_ends=any(each.item_ends for each in encoders),
        most_tokens=max(most) if all(most) else 0,
    )
