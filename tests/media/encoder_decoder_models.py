"""Tiny encoder-decoders of text on disk, and what `transformers` makes of them."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from pagemill.engine.llm import LLM, Output
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    BlenderbotConfig,
    BlenderbotForConditionalGeneration,
    BlenderbotSmallConfig,
    BlenderbotSmallForConditionalGeneration,
    LongT5Config,
    LongT5ForConditionalGeneration,
    M2M100Config,
    M2M100ForConditionalGeneration,
    MarianConfig,
    MarianMTModel,
    MBartConfig,
    MBartForConditionalGeneration,
    MT5Config,
    MT5ForConditionalGeneration,
    PegasusConfig,
    PegasusForConditionalGeneration,
    PLBartConfig,
    PLBartForConditionalGeneration,
    PreTrainedModel,
    T5Config,
    T5ForConditionalGeneration,
    T5GemmaConfig,
    T5GemmaForConditionalGeneration,
    UMT5Config,
    UMT5ForConditionalGeneration,
)

from tests.media.media_model import GENERATED, MediaTestModel
from tests.parity.tiny_models import save

PAD, START, LANGUAGE = 3, 4, 5
POSITIONS = 90
_IDS = {
    "vocab_size": 257,
    "pad_token_id": PAD,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": START,
    "forced_eos_token_id": None,
}
_BART = _IDS | {
    "d_model": 48,
    "encoder_layers": 2,
    "decoder_layers": 3,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 56,
    "decoder_ffn_dim": 72,
    "max_position_embeddings": POSITIONS,
}
_T5 = _IDS | {
    "d_model": 48,
    "d_kv": 16,
    "d_ff": 72,
    "num_layers": 2,
    "num_decoder_layers": 3,
    "num_heads": 4,
    "n_positions": POSITIONS,
    "relative_attention_num_buckets": 8,
    "relative_attention_max_distance": 20,
}
_GATED = {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}
# As in the small models of T5 1.1 and mT5, heads do not share the features of a token.
_SMALL = _T5 | _GATED | {"num_heads": 5}

_GEMMA: dict[str, Any] = {
    "vocab_size": 257,
    "pad_token_id": PAD,
    "bos_token_id": START,
    "eos_token_id": 2,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": POSITIONS,
    "query_pre_attn_scalar": 13,
    "attn_logit_softcapping": 2.0,
    "final_logit_softcapping": 3.0,
}

Make = Callable[..., PreTrainedModel]
FAMILIES: dict[str, Make] = {
    "bart": lambda: BartForConditionalGeneration(BartConfig(**_BART, scale_embedding=True)),
    "blenderbot": lambda: BlenderbotForConditionalGeneration(BlenderbotConfig(**_BART)),
    "blenderbot_small": lambda: BlenderbotSmallForConditionalGeneration(
        BlenderbotSmallConfig(**_BART, scale_embedding=True)
    ),
    "longt5": lambda: LongT5ForConditionalGeneration(LongT5Config(**_SMALL, local_radius=4)),
    "m2m_100": lambda: M2M100ForConditionalGeneration(M2M100Config(**_BART)),
    "marian": lambda: MarianMTModel(
        MarianConfig(**_BART | {"decoder_vocab_size": 257, "activation_function": "swish"})
    ),
    "mbart": lambda: MBartForConditionalGeneration(MBartConfig(**_BART)),
    "mt5": lambda **changes: MT5ForConditionalGeneration(MT5Config(**_SMALL | changes)),
    "pegasus": lambda: PegasusForConditionalGeneration(
        PegasusConfig(**_BART, activation_function="relu", scale_embedding=True)
    ),
    "plbart": lambda: PLBartForConditionalGeneration(PLBartConfig(**_BART)),
    "t5": lambda **changes: T5ForConditionalGeneration(T5Config(**_T5 | changes)),
    "t5_gated": lambda **changes: T5ForConditionalGeneration(T5Config(**_SMALL | changes)),
    "t5gemma": lambda: _t5gemma(),
    "t5gemma_untied": lambda: _t5gemma(tie_word_embeddings=False),
    "umt5": lambda **changes: UMT5ForConditionalGeneration(UMT5Config(**_T5 | _GATED | changes)),
}


def _t5gemma(**changes: Any) -> PreTrainedModel:
    """An encoder with windows that texts exceed, and a decoder of another size."""
    encoder: dict[str, Any] = _GEMMA | {
        "hidden_size": 48,
        "intermediate_size": 56,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "sliding_window": 7,
    }
    decoder: dict[str, Any] = _GEMMA | {
        "hidden_size": 72,
        "intermediate_size": 88,
        "num_hidden_layers": 2,
        "num_attention_heads": 6,
        "sliding_window": POSITIONS,
    }
    # Its other attentions leave out the caps of scores.
    config = T5GemmaConfig(
        encoder=encoder,
        decoder=decoder,
        vocab_size=257,
        attn_implementation="eager",
        **changes,
    )
    return T5GemmaForConditionalGeneration(config)


class TextToText(MediaTestModel):
    """An encoder-decoder; its `media` of a prompt are the ids of the text that the encoder read."""

    def generate_texts(
        self, llm: LLM, prompts: Sequence[Any], generated: int = GENERATED, **fields: Any
    ) -> list[Output]:
        """What follows each prompt, by default the most likely tokens."""
        options = {"temperature": 0.0, "max_tokens": generated, "ignore_eos": True}
        return llm.generate(prompts, progress=io.StringIO(), **(options | fields))


def saved(path: Path, family: str, **changes: Any) -> PreTrainedModel:
    """A checkpoint of random weights, with `changes` of T5's configuration, and its reference."""
    torch.manual_seed(0)
    reference = FAMILIES[family](**changes)
    reference.generation_config.forced_bos_token_id = 0 if family == "bart" else None
    with torch.no_grad():
        for name, buffer in reference.named_buffers():
            if name == "final_logits_bias":
                buffer.normal_()
    return save(reference, path)


def model(path: Path, family: str) -> TextToText:
    """A checkpoint of random weights, and the model that reads it."""
    return with_reference(path, saved(path, family))


def with_reference(path: Path, reference: PreTrainedModel) -> TextToText:
    def logits(ids: list[int], text: Sequence[int]) -> torch.Tensor:
        """A prompt begins with a padding token for each of the encoder's."""
        count = len(text)
        assert ids[:count] == [PAD] * count and ids[count] == START
        with torch.inference_mode():
            rows = reference(
                input_ids=torch.tensor([list(text)]),
                attention_mask=torch.ones(1, count, dtype=torch.long),
                decoder_input_ids=torch.tensor([ids[count:]]),
                use_cache=False,
            ).logits[0]
        return torch.cat([torch.zeros(count, rows.shape[1]), rows])

    return TextToText(path, logits)
