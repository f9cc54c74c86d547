"""Encoder-decoders of text by the architecture in a config.json."""

from __future__ import annotations

from pagemill.models.architecture import Architecture

ENCODER_DECODERS: dict[str, Architecture] = {
    "BartForConditionalGeneration": Architecture(
        "encoder_decoder.bart:BartModel", "BART", ("bart",), "text of text"
    ),
    "BlenderbotForConditionalGeneration": Architecture(
        "encoder_decoder.bart:BlenderbotModel", "Blenderbot", ("blenderbot",), "text of text"
    ),
    "BlenderbotSmallForConditionalGeneration": Architecture(
        "encoder_decoder.bart:BlenderbotSmallModel",
        "Blenderbot Small",
        ("blenderbot-small",),
        "text of text",
    ),
    "LongT5ForConditionalGeneration": Architecture(
        "encoder_decoder.t5:LongT5DecoderModel", "LongT5, local", ("longt5",), "text of text"
    ),
    "M2M100ForConditionalGeneration": Architecture(
        "encoder_decoder.bart:M2M100Model", "M2M-100, NLLB-200", ("m2m_100",), "text of text"
    ),
    "MBartForConditionalGeneration": Architecture(
        "encoder_decoder.bart:MBartModel", "mBART, mBART-50", ("mbart",), "text of text"
    ),
    "MT5ForConditionalGeneration": Architecture(
        "encoder_decoder.t5:MT5Model", "mT5", ("mt5",), "text of text"
    ),
    "MarianMTModel": Architecture(
        "encoder_decoder.bart:MarianModel", "Marian, OPUS-MT", ("marian",), "text of text"
    ),
    "PLBartForConditionalGeneration": Architecture(
        "encoder_decoder.bart:PlBartModel", "PLBart", ("plbart",), "text of text"
    ),
    "PegasusForConditionalGeneration": Architecture(
        "encoder_decoder.bart:PegasusModel", "Pegasus", ("pegasus",), "text of text"
    ),
    "T5ForConditionalGeneration": Architecture(
        "encoder_decoder.t5:T5DecoderModel", "T5, Flan-T5", ("t5",), "text of text"
    ),
    "T5GemmaForConditionalGeneration": Architecture(
        "encoder_decoder.t5gemma:T5GemmaModel", "T5Gemma", ("t5gemma",), "text of text"
    ),
    "UMT5ForConditionalGeneration": Architecture(
        "encoder_decoder.t5:T5DecoderModel", "UMT5", ("umt5",), "text of text"
    ),
}
