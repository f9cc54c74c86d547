"""Times of words over HTTP are those of `transformers`' pipeline for speech."""

from __future__ import annotations

import json
import string
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import openai
import pytest
import torch
from pagemill.render.transcription.clips import cut
from pagemill.render.transcription.testing.speech_tokenizers import (
    WHISPER_LANGUAGES,
    whisper_tokenizer,
)
from transformers import (
    GenerationConfig,
    PreTrainedModel,
    WhisperConfig,
    WhisperFeatureExtractor,
    WhisperForConditionalGeneration,
    WhisperTokenizerFast,
    pipeline,
)

from tests.e2e.server_process import NAME, serve
from tests.parity.tiny_models import save
from tests.transcription.transcribing_server import (
    BINS,
    OPTIONS,
    RATE,
    TranscribingServer,
    wav,
)

TOKENIZER = whisper_tokenizer()
END, TIMES = (TOKENIZER.token_to_id(f"<|{name}|>") for name in ("endoftext", "0.00"))
SPACE, COMMA = map(TOKENIZER.token_to_id, "Ġ,")
# Outputs are times, and words of letters and commas. Spaces and commas are written where other
# letters would be.
REPLACED = {SPACE: TOKENIZER.token_to_id("v"), COMMA: TOKENIZER.token_to_id("t")}
WRITTEN = {SPACE, COMMA, *map(TOKENIZER.token_to_id, string.ascii_lowercase)} - {*REPLACED.values()}
MAX_TOKENS = 30
HEADS = [[1, 1], [0, 1], [1, 0]]
_EXTRACTOR = WhisperFeatureExtractor(feature_size=BINS)
_GREEDY: dict[str, Any] = {"max_new_tokens": MAX_TOKENS, "num_beams": 1}
_WORDS: dict[str, Any] = {
    "response_format": "verbose_json",
    "timestamp_granularities": ["word"],
    "extra_body": {"max_completion_tokens": MAX_TOKENS},
}


def audio(seed: int, seconds: float) -> np.ndarray:
    """Noise, whose loudness changes."""
    samples = np.random.default_rng(seed).normal(size=int(seconds * RATE))
    loudness = 0.1 + 0.09 * np.sin(np.arange(len(samples)) / 3000)
    return (samples * loudness / 4).astype("f4")


def generation_config() -> GenerationConfig:
    def token(name: str) -> int:
        return TOKENIZER.token_to_id(f"<|{name}|>")

    return GenerationConfig(
        eos_token_id=END,
        pad_token_id=END,
        bos_token_id=END,
        decoder_start_token_id=token("startoftranscript"),
        no_timestamps_token_id=TIMES - 1,
        max_initial_timestamp_index=40,
        suppress_tokens=[i for i in range(TIMES) if i not in {*WRITTEN, END}],
        begin_suppress_tokens=[SPACE, END],
        is_multilingual=True,
        lang_to_id={f"<|{name}|>": token(name) for name in WHISPER_LANGUAGES},
        task_to_id={name: token(name) for name in ("transcribe", "translate")},
        alignment_heads=HEADS,
    )


def make_model(folder: Path) -> PreTrainedModel:
    """A checkpoint, whose texts depend on what is heard and on places alike, as their words do."""
    config = WhisperConfig(
        vocab_size=TOKENIZER.get_vocab_size(),
        num_mel_bins=BINS,
        d_model=32,
        encoder_layers=1,
        encoder_attention_heads=2,
        encoder_ffn_dim=48,
        decoder_layers=2,
        decoder_attention_heads=2,
        decoder_ffn_dim=48,
        max_target_positions=40,
        pad_token_id=END,
        bos_token_id=END,
        eos_token_id=END,
        decoder_start_token_id=TOKENIZER.token_to_id("<|startoftranscript|>"),
    )
    torch.manual_seed(1)
    reference = save(WhisperForConditionalGeneration(config), folder)
    decoder = reference.model.decoder
    with torch.no_grad():
        for parameter in reference.parameters():
            parameter.copy_(parameter.new_empty(parameter.shape).normal_(std=0.2))
        for name, parameter in reference.named_parameters():
            if "norm.weight" in name:
                parameter.fill_(1)
        for layer in decoder.layers:
            for module in (layer.encoder_attn.out_proj, layer.self_attn.out_proj, layer.fc2):
                module.weight *= 0.3
                module.bias *= 0.1
            layer.encoder_attn.q_proj.weight *= 2
            layer.encoder_attn.k_proj.weight *= 3
        decoder.embed_positions.weight *= 8
        embeddings = decoder.embed_tokens.weight
        embeddings *= 0.3
        for token, other in REPLACED.items():
            embeddings[token] = embeddings[other]
        decoder.layer_norm.bias[0] = 9  # keeps times rare
        embeddings[TIMES:, 0] = -1
        embeddings[END, 0] = -0.05
    reference.generation_config = generation_config()
    reference.save_pretrained(folder)
    TOKENIZER.save(str(folder / "tokenizer.json"))
    _EXTRACTOR.save_pretrained(folder)
    return reference


class Words:
    """A server, and the pipeline of its model."""

    def __init__(self, server: TranscribingServer) -> None:
        url = f"{server.server.base_url}/v1"
        self.client = openai.OpenAI(base_url=url, api_key="none")
        end = dict.fromkeys(("eos_token", "bos_token", "unk_token"), "<|endoftext|>")
        self.pipeline = pipeline(
            "automatic-speech-recognition",
            model=server.reference,
            tokenizer=WhisperTokenizerFast(tokenizer_object=TOKENIZER, **end),
            feature_extractor=_EXTRACTOR,
        )

    def answer(self, samples: np.ndarray, **fields: Any) -> Any:
        file = ("a.wav", wav(samples))
        fields = {"language": "de", **_WORDS} | fields
        return self.client.audio.transcriptions.create(model=NAME, file=file, **fields)

    def expected(self, samples: np.ndarray, language: str = "de") -> list[tuple[str, float, float]]:
        """Those of one clip."""
        generate = {"language": language, "task": "transcribe"} | _GREEDY
        found = self.pipeline(samples, return_timestamps="word", generate_kwargs=generate)
        chunks = [(chunk["text"].strip(), *chunk["timestamp"]) for chunk in found["chunks"]]
        return [chunk for chunk in chunks if chunk[0]]

    def check(self, answer: Any, expected: list[tuple[str, float, float]]) -> None:
        assert [word.word for word in answer.words] == [word for word, _, _ in expected]
        times = np.array([(word.start, word.end) for word in answer.words])
        wanted = np.array([times for _, *times in expected])
        np.testing.assert_allclose(times, wanted, rtol=0, atol=0.011)  # it rounds to 10 ms
        assert len(np.unique(wanted)) > len(wanted) / 2, "many words are at the same place"


@pytest.fixture(scope="module", name="words")
def _words(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Words]:
    folder = tmp_path_factory.mktemp("whisper")
    reference = make_model(folder)
    # The rows of a recording and its text come in several steps.
    options = (*OPTIONS, "--max-audio-seconds", "100", "--max-num-batched-tokens", "1000")
    with serve(str(folder), tmp_path_factory.mktemp("server"), options) as server:
        yield Words(TranscribingServer(server, reference, TOKENIZER))
        server.wait_until_idle()


@pytest.mark.parametrize("seed", range(4))
def test_words_of_a_clip(words: Words, seed: int) -> None:
    samples = audio(seed, 2.0 + 6.3 * seed)
    answer = words.answer(samples)
    assert answer.segments is None and answer.text
    words.check(answer, words.expected(samples))


def test_words_of_several_clips(words: Words) -> None:
    """Their times are those of the file."""
    samples = audio(7, 65.0)
    both = words.answer(samples, timestamp_granularities=["word", "segment"])
    expected: list[tuple[str, float, float]] = []
    for clip in cut(samples, RATE, 30):
        found = words.expected(clip.samples)
        expected += [(word, *(clip.start_s + t for t in times)) for word, *times in found]
    words.check(both, expected)
    text = "".join(segment.text for segment in both.segments)
    assert "".join(word.word for word in both.words) == text.replace(" ", "")


def test_languages_without_spaces(words: Words) -> None:
    """Each character is a word."""
    samples = audio(2, 9.0)
    answer = words.answer(samples, language="zh")
    words.pipeline.tokenizer.language = "chinese"
    try:
        words.check(answer, words.expected(samples, "zh"))
    finally:
        words.pipeline.tokenizer.language = None
    assert all(len(word.word.rstrip(",")) == 1 for word in answer.words)


def test_formats_without_words(words: Words) -> None:
    with pytest.raises(openai.BadRequestError, match="verbose_json"):
        words.answer(audio(1, 1.0), response_format="srt")
    segments = words.answer(audio(1, 4.0), timestamp_granularities=["segment"])
    assert segments.words is None and segments.segments


@pytest.mark.parametrize(
    ("heads", "options"), [(None, ()), (HEADS, ("--tensor-parallel-size", "2"))]
)
def test_models_that_cannot_tell(
    tmp_path: Path, heads: list[list[int]] | None, options: tuple[str, ...]
) -> None:
    folder = tmp_path / "model"
    make_model(folder)
    file = folder / "generation_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"alignment_heads": heads}))
    with serve(str(folder), tmp_path, (*OPTIONS, *options)) as server:
        client = openai.OpenAI(base_url=f"{server.base_url}/v1", api_key="none")
        with pytest.raises(openai.BadRequestError, match="alignment_heads") as refused:
            client.audio.transcriptions.create(
                model=NAME, file=("a.wav", wav(audio(1, 1.0))), **_WORDS
            )
        assert refused.value.param == "timestamp_granularities"
