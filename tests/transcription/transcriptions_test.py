"""Transcriptions over HTTP: what a server writes of audio files is what `transformers` finds, with
the features of its extractor."""

from __future__ import annotations

import json
import math
import string
from collections.abc import Iterator, Sequence
from typing import Any

import httpx
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
    LogitsProcessorList,
    SuppressTokensAtBeginLogitsProcessor,
    SuppressTokensLogitsProcessor,
    WhisperConfig,
    WhisperFeatureExtractor,
    WhisperForConditionalGeneration,
    WhisperTimeStampLogitsProcessor,
)

from tests.e2e.server_process import NAME, serve
from tests.parity.tiny_models import save
from tests.transcription.transcribing_server import (
    BINS,
    MAX_TOKENS,
    OPTIONS,
    PATH,
    RATE,
    TRANSCRIBED,
    TranscribingServer,
    session,
    wav,
)

TOKENIZER = whisper_tokenizer()
END = TOKENIZER.token_to_id("<|endoftext|>")
TIMES = TOKENIZER.token_to_id("<|0.00|>")
# Outputs are small letters, spaces and times.
SUPPRESSED = [
    *(i for i in range(END) if TOKENIZER.id_to_token(i) not in {*string.ascii_lowercase, "Ġ"}),
    *range(END + 1, TIMES),
]
BEGIN_SUPPRESSED = [TOKENIZER.token_to_id("Ġ"), END]
MAX_FIRST_TIME = 40
_EXTRACTOR = WhisperFeatureExtractor(feature_size=BINS)


def ids(*names: str) -> list[int]:
    return [TOKENIZER.token_to_id(f"<|{name}|>") for name in names]


def audio(seed: int, seconds: float) -> np.ndarray:
    """Noise, whose loudness changes."""
    samples = np.random.default_rng(seed).normal(size=int(seconds * RATE))
    loudness = 0.1 + 0.09 * np.sin(np.arange(len(samples)) / 3000)
    return (samples * loudness / 4).astype("f4")


class WhisperServer(TranscribingServer):
    """A running server of Whisper, whose tokens are found by the rules of its reference."""

    def answer(self, samples: np.ndarray, path: str = PATH, **fields: str) -> dict[str, Any]:
        response = self.post(samples, path, **fields)
        assert response.status_code == 200, response.text
        return response.json()

    def logits(self, samples: np.ndarray, tokens: Sequence[int]) -> torch.Tensor:
        """Of what follows `tokens` behind a clip: [vocabulary]."""
        found = _EXTRACTOR(samples, sampling_rate=RATE, return_tensors="pt")
        with torch.no_grad():
            inputs = torch.tensor([list(tokens)])
            out = self.reference(found["input_features"], decoder_input_ids=inputs)
        return out.logits[0, -1].clone()

    def rules(self, prompt: Sequence[int]) -> LogitsProcessorList:
        """Those of the reference for what follows `prompt`."""
        rules = LogitsProcessorList(
            [
                SuppressTokensAtBeginLogitsProcessor(BEGIN_SUPPRESSED, len(prompt)),
                SuppressTokensLogitsProcessor(SUPPRESSED),
            ]
        )
        if prompt[-1:] != ids("notimestamps"):
            timed = GenerationConfig(
                eos_token_id=END,
                no_timestamps_token_id=TIMES - 1,
                max_initial_timestamp_index=MAX_FIRST_TIME,
            )
            rules.append(WhisperTimeStampLogitsProcessor(timed, len(prompt)))
        return rules

    def greedy(self, samples: np.ndarray, prompt: Sequence[int]) -> list[int]:
        """The likeliest tokens behind a clip and `prompt`, by the rules of the reference."""
        rules = self.rules(prompt)
        tokens: list[int] = []
        while len(tokens) < MAX_TOKENS and tokens[-1:] != [END]:
            before = [*prompt, *tokens]
            logits = rules(torch.tensor([before]), self.logits(samples, before)[None])
            tokens.append(int(logits.argmax()))
        return tokens

    def best_beam(self, samples: np.ndarray, prompt: Sequence[int], width: int) -> list[int]:
        """The best of `width` beams by the mean log probability among the tokens that the rules
        leave."""
        rules = self.rules(prompt)
        live: list[tuple[float, list[int]]] = [(0.0, [])]
        ended: list[tuple[float, list[int]]] = []
        for _ in range(MAX_TOKENS):
            found: list[tuple[float, list[int]]] = []
            for score, tokens in live:
                before = [*prompt, *tokens]
                logits = rules(torch.tensor([before]), self.logits(samples, before)[None])
                best = logits[0].log_softmax(-1).topk(2 * width)
                pairs = zip(best.values.tolist(), best.indices.tolist(), strict=True)
                found += [(score + each, [*tokens, token]) for each, token in pairs]
            ended += [each for each in found if each[1][-1] == END]
            found = [each for each in found if each[1][-1] != END and each[0] > -math.inf]
            live = sorted(found, reverse=True)[:width]
        return max((score / len(tokens), tokens) for score, tokens in [*ended, *live])[1]

    def language(self, samples: np.ndarray) -> str:
        logits = self.logits(samples, ids("startoftranscript"))
        return max(WHISPER_LANGUAGES, key=lambda name: float(logits[ids(name)[0]]))


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WhisperServer]:
    folder = tmp_path_factory.mktemp("whisper")
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
        decoder_start_token_id=ids("startoftranscript")[0],
    )
    torch.manual_seed(1)
    reference = save(WhisperForConditionalGeneration(config), folder)
    with torch.no_grad():  # so that not each token follows itself, and few are times
        reference.model.decoder.embed_tokens.weight *= 0.3
        reference.model.decoder.embed_tokens.weight[TIMES:] *= 0.5
        reference.model.decoder.embed_positions.weight *= 3
    reference.save_pretrained(folder)
    TOKENIZER.save(str(folder / "tokenizer.json"))
    _EXTRACTOR.save_pretrained(folder)
    generation = {
        "suppress_tokens": SUPPRESSED,
        "begin_suppress_tokens": BEGIN_SUPPRESSED,
        "max_initial_timestamp_index": MAX_FIRST_TIME,
        "eos_token_id": END,
    }
    (folder / "generation_config.json").write_text(json.dumps(generation))
    options = (*OPTIONS, "--max-audio-seconds", "100")
    with serve(str(folder), tmp_path_factory.mktemp("server"), options) as server:
        yield WhisperServer(server, reference, TOKENIZER)
        server.wait_until_idle()


def text_tokens(answer: dict[str, Any]) -> list[int]:
    return [token for segment in answer["segments"] for token in segment["tokens"]]


def test_tokens_and_probabilities(served: WhisperServer) -> None:
    samples = audio(1, 4.0)
    answer = served.answer(samples, response_format="verbose_json")
    language = served.language(samples)
    assert (answer["language"], answer["duration"]) == (language, 4.0)
    prompt = ids("startoftranscript", language, "transcribe")
    found = served.greedy(samples, prompt)
    assert text_tokens(answer) == [token for token in found if token < END]
    start = served.logits(samples, prompt[:1]).log_softmax(-1)
    expected = math.exp(float(start[ids("nospeech")[0]]))
    assert answer["segments"][0]["no_speech_prob"] == pytest.approx(expected, rel=1e-2)
    assert all(0 <= s["start"] <= s["end"] <= 4.0 for s in answer["segments"])


@pytest.mark.parametrize(
    ("path", "task"), [(PATH, "transcribe"), ("/v1/audio/translations", "translate")]
)
def test_text(served: WhisperServer, path: str, task: str) -> None:
    samples = audio(2, 2.0)
    prompt = ids("startofprev") + TOKENIZER.encode(" as before").ids
    prompt += ids("startoftranscript", "de", task, "notimestamps")
    found = [token for token in served.greedy(samples, prompt) if token != END]
    fields = {"language": "de", "prompt": "as before"}
    answer = served.answer(samples, path, **fields)
    text = TOKENIZER.decode(found).strip()
    assert text
    assert answer == {"text": text, "usage": {"type": "duration", "seconds": 2}}
    streamed = served.post(samples, path, stream="true", **fields).text
    chunks = [json.loads(line[6:]) for line in streamed.splitlines() if line.startswith("data: {")]
    assert "".join(c["choices"][0]["delta"]["content"] for c in chunks).strip() == text


@pytest.mark.parametrize("width", [1, 3])
def test_beams(served: WhisperServer, width: int) -> None:
    fields = {"use_beam_search": "true", "n": str(width), "language": "de"}
    differs = 0
    for seed in (2, 6):
        samples = audio(seed, 2.0)
        prompt = ids("startoftranscript", "de", "transcribe")
        untimed = [*prompt, *ids("notimestamps")]
        found = served.best_beam(samples, untimed, width)
        differs += found != served.greedy(samples, untimed)
        text = TOKENIZER.decode([token for token in found if token != END]).strip()
        assert served.answer(samples, **fields)["text"] == text
        timed = served.answer(samples, response_format="verbose_json", **fields)
        found = served.best_beam(samples, prompt, width)
        differs += found != served.greedy(samples, prompt)
        assert text_tokens(timed) == [token for token in found if token < END]
    assert (differs > 0) == (width > 1)


def test_long_audio(served: WhisperServer) -> None:
    samples = audio(3, 70.0)
    samples[int(29.2 * RATE) : int(29.3 * RATE)] = 0
    answer = served.answer(samples, language="en", response_format="verbose_json")
    prompt = ids("startoftranscript", "en", "transcribe")
    clips = cut(samples, RATE, 30)
    assert len(clips) == 3 and clips[1].start_s == pytest.approx(29.25)
    found = [token for clip in clips for token in served.greedy(clip.samples, prompt)]
    assert text_tokens(answer) == [token for token in found if token < END]
    seeks = sorted({segment["seek"] for segment in answer["segments"]})
    assert set(seeks) <= {round(100 * clip.start_s) for clip in clips}
    assert answer["duration"] == 70.0 and answer["usage"]["seconds"] == 70


def test_the_openai_client(served: WhisperServer) -> None:
    client = openai.OpenAI(base_url=f"{served.server.base_url}/v1", api_key="none")
    file = ("a.wav", wav(audio(2, 2.0)))
    create = client.audio.transcriptions.create
    whole = create(model=NAME, file=file, language="de")
    with client.audio.transcriptions.with_streaming_response.create(
        model=NAME, file=file, language="de", response_format="text"
    ) as response:
        assert response.read().decode() == whole.text
    subtitles = create(model=NAME, file=file, language="de", response_format="vtt")
    assert subtitles.startswith("WEBVTT\n")


def test_refusals(served: WhisperServer) -> None:
    url = served.server.base_url
    for path in ("/v1/chat/completions", "/v1/completions", "/inference/v1/generate"):
        refused = httpx.post(f"{url}{path}", json={"prompt": "a", "model": NAME}, timeout=60)
        assert refused.status_code == 404 and PATH in refused.json()["error"]["message"]
    refused = httpx.post(f"{url}{PATH}", files={"file": b"not audio"}, timeout=60)
    assert refused.status_code == 400 and "WAV" in refused.json()["error"]["message"]
    assert served.post(audio(1, 101.0)).status_code == 400
    assert served.post(audio(1, 1.0), max_completion_tokens="100").status_code == 400
    assert served.post(audio(1, 1.0), language="fr").status_code == 400


def test_a_session_writes_what_a_file_has(served: WhisperServer) -> None:
    sent = (audio(5, 3.0) * 30_000).astype(np.int16)
    with session(served.server, intent="transcription") as client:
        for rate in (RATE, 24_000):
            sound_format = {"type": "audio/pcm", "rate": rate}
            transcription = {"language": "de", "prompt": "as before"}
            client.update(
                type="transcription",
                audio_input={"format": sound_format, "transcription": transcription},
            )
            client.commit(sent)
            done = client.until(TRANSCRIBED)
            fields = {**transcription, "max_completion_tokens": "25"}  # all the room there is
            whole = served.post(sent, rate=rate, **fields)
            assert done.transcript and done.transcript == whole.json()["text"], whole.text
            assert done.usage.seconds == pytest.approx(len(sent) / rate)
