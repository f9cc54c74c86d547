"""Encoder-decoders of text through the engine, compared with `transformers`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pagemill.engine.offline_beams import BeamSearchParams
from pagemill.engine.outputs import EngineError
from pagemill.inputs.task import Task
from pagemill.models.base import ModelConfigError
from pagemill.runner.build import BuildOptions, build, model_shapes
from pagemill.weights.errors import WeightsError
from pagemill.weights.source import ModelSource

from tests.families.gguf_converters import T5
from tests.families.gguf_files import write_gguf
from tests.media.encoder_decoder_models import (
    FAMILIES,
    LANGUAGE,
    PAD,
    POSITIONS,
    START,
    TextToText,
    model,
    saved,
    with_reference,
)
from tests.media.media_model import encoded, text

BIG = {"max_model_len": 2 * POSITIONS}


@pytest.fixture(scope="module", name="bart")
def _bart(tmp_path_factory: pytest.TempPathFactory) -> TextToText:
    return model(tmp_path_factory.mktemp("bart"), "bart")


@pytest.fixture(scope="module", name="t5")
def _t5(tmp_path_factory: pytest.TempPathFactory) -> TextToText:
    return model(tmp_path_factory.mktemp("t5"), "t5")


@pytest.fixture(scope="module", name="gemma")
def _gemma(tmp_path_factory: pytest.TempPathFactory) -> TextToText:
    return model(tmp_path_factory.mktemp("t5gemma"), "t5gemma")


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("executor", ["native", "torch"])
def test_tokens_of_several_requests(family: str, executor: str, tmp_path: Path) -> None:
    made = model(tmp_path, family)
    texts = [text(1, 9), text(2, 1), text(3, 40), text(4, 2), text(1, 9)]
    with made.llm(executor=executor, **BIG) as llm:
        for output, own in zip(made.generate_texts(llm, texts, logprobs=0), texts, strict=True):
            made.check(output, own)  # type: ignore[arg-type]
        assert encoded(llm) == 4, "equal texts are encoded once"


@pytest.mark.parametrize("family", ["mt5", "t5", "t5_gated", "umt5"])
def test_gguf_files(family: str, tmp_path: Path) -> None:
    """As llama.cpp's converter writes them. Distances are those that its files do not state."""
    reference = saved(tmp_path, family, relative_attention_max_distance=128)
    made = with_reference(tmp_path, reference)
    made.path = tmp_path / "model.gguf"
    write_gguf(reference, tmp_path, "t5", made.path, T5)
    texts = [text(1, 9), text(2, 1), text(3, 60)]
    with made.llm(**BIG) as llm:
        for output, own in zip(made.generate_texts(llm, texts, logprobs=0), texts, strict=True):
            made.check(output, own)  # type: ignore[arg-type]


@pytest.mark.parametrize("family", ["bart", "t5"])
def test_sampled_tokens(family: str, request: pytest.FixtureRequest) -> None:
    """Their log probabilities are those of `transformers`, and no other request changes them."""
    made: TextToText = request.getfixturevalue(family)
    texts = [text(1, 12), text(2, 5), text(3, 30)]
    fields: dict[str, Any] = {"temperature": 1.0, "seed": 7, "logprobs": 0}
    with made.llm(**BIG) as llm:
        together = made.generate_texts(llm, texts, **fields)
        (alone,) = made.generate_texts(llm, [texts[1]], **fields)
    assert alone.choices[0].token_ids == together[1].choices[0].token_ids
    for output, own in zip(together, texts, strict=True):
        choice, prompt = output.choices[0], output.prompt_token_ids
        rows = made.logits(prompt, choice.token_ids[:-1], own)[len(prompt) - 1 :]  # type: ignore[arg-type]
        expected = rows.log_softmax(-1).numpy()
        assert choice.logprobs is not None
        for row, token, found in zip(expected, choice.token_ids, choice.logprobs, strict=True):
            assert abs(found.logprob - row[token]) < 2e-4


@pytest.mark.parametrize("family", ["bart", "t5", "gemma"])
@pytest.mark.parametrize("step", [16, 21, 40])
def test_texts_in_parts(family: str, step: int, request: pytest.FixtureRequest) -> None:
    """Steps of a part of the encoder's rows, of their end and of the decoder's first tokens."""
    made: TextToText = request.getfixturevalue(family)
    texts = [text(1, 50), text(2, 33), text(3, 3)]
    prompts = [{"encoder_prompt": own, "decoder_prompt": text(9, 20)} for own in texts]
    with made.llm(max_num_batched_tokens=step, **BIG) as llm:
        for output, own in zip(made.generate_texts(llm, prompts), texts, strict=True):
            made.check(output, own)  # type: ignore[arg-type]


@pytest.mark.parametrize("family", ["bart", "t5", "gemma"])
def test_many_generated_tokens(family: str, request: pytest.FixtureRequest) -> None:
    """Distances grow beyond those that have a bucket of their own."""
    made: TextToText = request.getfixturevalue(family)
    own = text(5, 7)
    with made.llm(**BIG) as llm:
        (output,) = made.generate_texts(llm, [own], generated=POSITIONS - 2)
    prompt, tokens = output.prompt_token_ids, output.choices[0].token_ids
    rows = made.logits(prompt, tokens[:-1], own)[len(prompt) - 1 :]  # type: ignore[arg-type]
    assert tokens == rows.argmax(-1).tolist() and len(tokens) == POSITIONS - 2


def test_prefixes_are_those_of_equal_texts(bart: TextToText) -> None:
    """KV of the decoder depends on the whole text of its encoder."""
    first, other = text(1, 40), text(1, 40)[:-1] + text(2, 1)
    with bart.llm(**BIG) as llm:
        cached: list[int] = []
        for own in (first, other, first):
            (output,) = bart.generate_texts(llm, [own])
            bart.check(output, own)  # type: ignore[arg-type]
            cached.append(output.num_cached_tokens)
        assert cached == [0, 0, 32]


def test_preempted_requests_read_again(t5: TextToText) -> None:
    texts = [text(i, 20 + i) for i in range(4)]
    prompts = [{"encoder_prompt": own, "decoder_prompt": text(9, 40)} for own in texts]
    page = 2 * 64 * 16 * 4 * 3  # bytes: keys and values of three layers
    options = {"max_model_len": 80, "kv_cache_memory_bytes": f"{page * 9}B", "max_step_ms": 0}
    with t5.llm(**options) as llm:
        engine = llm._engine
        engine.pause("keep")
        llm.enqueue(prompts, temperature=0.0, max_tokens=6, ignore_eos=True)
        engine.resume()
        for output, own in zip(llm.wait_for_completion(), texts, strict=True):
            t5.check(output, own)  # type: ignore[arg-type]
        assert engine.stats().num_preemptions > 0


@pytest.mark.parametrize("family", ["bart", "t5", "gemma"])
def test_ranks(family: str, request: pytest.FixtureRequest) -> None:
    """Rank 0 reads, both decode."""
    made: TextToText = request.getfixturevalue(family)
    texts = [text(1, 9), text(2, 30)]
    with made.llm(tensor_parallel_size=2, **BIG) as llm:
        for output, own in zip(made.generate_texts(llm, texts), texts, strict=True):
            made.check(output, own)  # type: ignore[arg-type]


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_ids_are_exact_in_16_bits(bart: TextToText, dtype: str) -> None:
    """The encoder reads token ids as integers, whatever the type of activations."""
    own = text(1, 30)
    with bart.llm(**BIG) as llm:
        (expected,) = bart.generate_texts(llm, [own], logprobs=0)
    with bart.llm(kv_cache_dtype="bf16", dtype=dtype, **BIG) as llm:
        (found,) = bart.generate_texts(llm, [own], logprobs=0)
    values = [output.choices[0].logprobs[0].logprob for output in (expected, found)]  # type: ignore[index]
    assert abs(values[0] - values[1]) < 0.2


def test_drafts(bart: TextToText) -> None:
    """Those of tokens that repeat: a step has several tokens of a decoder."""
    drafts = {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_min": 1}
    texts = [text(1, 9), text(2, 30)]
    begins = [5, 6, 7, 8] * 4
    prompts = [{"encoder_prompt": own, "decoder_prompt": begins} for own in texts]
    with bart.llm(speculative_config=drafts, **BIG) as llm:
        for output, own in zip(bart.generate_texts(llm, prompts), texts, strict=True):
            bart.check(output, own)  # type: ignore[arg-type]
        assert llm.stats().draft_tokens > 0


def test_beams(bart: TextToText) -> None:
    own = text(1, 9)
    with bart.llm(**BIG) as llm:
        (found,) = llm.beam_search([own], BeamSearchParams(beam_width=2, max_tokens=4))
    assert len(found.choices) == 2


def test_how_a_decoder_begins(bart: TextToText) -> None:
    """With the configuration's tokens, or those of the prompt behind the first of them."""
    own = text(1, 4)
    begins: dict[Any, list[int]] = {
        None: [START, 0],
        (): [START, 0],
        (LANGUAGE, 9): [START, LANGUAGE, 9],
        (START, LANGUAGE): [START, LANGUAGE],
        f"t{LANGUAGE}": [START, LANGUAGE],
    }
    with bart.llm(**BIG) as llm:
        for decoder, ids in begins.items():
            prompt = {"encoder_prompt": own, "decoder_prompt": decoder}
            (output,) = bart.generate_texts(llm, [prompt])
            assert output.prompt_token_ids == [PAD] * 4 + ids
            bart.check(output, own)  # type: ignore[arg-type]


def test_what_does_not_fit_is_refused(bart: TextToText) -> None:
    with bart.llm(**BIG) as llm:

        def refuse(message: str, prompt: Any, **fields: Any) -> None:
            with pytest.raises(EngineError, match=message) as refused:
                bart.generate_texts(llm, [prompt], **fields)
            assert refused.value.code == "INVALID_ARGUMENT"

        refuse(f"has 91 tokens; the encoder of this model reads 1 to {POSITIONS}", text(1, 91))
        refuse("has 0 tokens", [])
        refuse("token ids that are not from 0 to 256", [5, 257])
        refuse("leaves 99 - 11 = 88", text(1, 9), max_tokens=89)
        refuse("no log probabilities of prompts", text(1, 9), prompt_logprobs=0)
        refuse("and nothing else", {"encoder_prompt": [5], "prompt": [5]})
        decoder = {"encoder_prompt": [5], "decoder_prompt": text(1, POSITIONS)}
        refuse("maximum context length is 91 tokens", decoder)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"language_only": True}, "needs its encoder: leave out --language-model-only$"),
        ({"prompt_embeds": True}, "takes no prompt embeddings"),
        ({"task": Task.EMBED}, "generates, and does not pool"),
    ],
)
def test_options_that_it_cannot_have(
    bart: TextToText, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ModelConfigError, match=message):
        build(ModelSource.open(bart.path), BuildOptions(**options))


@pytest.mark.parametrize("family", ["bart", "t5", "gemma"])
def test_tensors_are_known_without_files(family: str, request: pytest.FixtureRequest) -> None:
    """All but the biases of logits, which checkpoints may have."""
    source = ModelSource.open(request.getfixturevalue(family).path)
    shapes = model_shapes(source, BuildOptions())
    assert shapes.keys() == {tensor.name for tensor in source.tensors} - {"final_logits_bias"}


@pytest.mark.parametrize(
    ("family", "key"),
    [
        ("bart", "decoder_layers"),
        ("bart", "encoder_ffn_dim"),
        ("bart", "max_position_embeddings"),
        ("t5", "num_decoder_layers"),
        ("t5", "relative_attention_num_buckets"),
    ],
)
def test_sizes_larger_than_the_files_are_refused(
    family: str, key: str, request: pytest.FixtureRequest
) -> None:
    source = ModelSource.open(request.getfixturevalue(family).path, {key: 2**30})
    with pytest.raises((WeightsError, ModelConfigError), match=r"10737418\d\d"):
        build(source, BuildOptions())


def test_short_contexts(t5: TextToText) -> None:
    """The encoder's step is no longer than a context, whatever the configuration says."""
    with t5.llm(max_model_len=40, hf_overrides={"n_positions": 2**20}) as llm:
        (output,) = t5.generate_texts(llm, [text(1, 30)])
        t5.check(output, text(1, 30))  # type: ignore[arg-type]
        with pytest.raises(EngineError, match="reads 1 to 40"):
            t5.generate_texts(llm, [text(1, 41)])


def test_a_decoder_is_no_longer_than_its_windows(gemma: TextToText) -> None:
    """Of T5Gemma, whose layers have the encoder's rows in one cache with their own."""
    parts = gemma_config(gemma)
    parts["decoder"]["sliding_window"] = 20
    with gemma.llm(hf_overrides=parts, max_model_len=POSITIONS + 20) as llm:
        (output,) = gemma.generate_texts(llm, [text(1, 30)])
        gemma.check(output, text(1, 30))  # type: ignore[arg-type]
        prompt = {"encoder_prompt": [5], "decoder_prompt": text(1, 20)}
        with pytest.raises(EngineError, match="maximum context length is 21 tokens"):
            gemma.generate_texts(llm, [prompt])


def test_null_is_no_cap(gemma: TextToText) -> None:
    """Of T5Gemma, whose caps are 50 and 30 if its configuration leaves them out."""
    found: list[list[float]] = []
    for cap in (0.0, None, 50.0):
        caps = {"attn_logit_softcapping": cap, "final_logit_softcapping": cap}
        parts = {part: own | caps for part, own in gemma_config(gemma).items()}
        with gemma.llm(hf_overrides=parts, **BIG) as llm:
            (output,) = gemma.generate_texts(llm, [text(1, 30)], logprobs=0)
        found.append([each.logprob for each in output.choices[0].logprobs or ()])
    none, null, capped = found
    assert none == null != capped and len(null) > 1


@pytest.mark.parametrize(
    ("part", "changes", "message"),
    [
        ("encoder", {"vocab_size": 256}, "the encoder has a vocabulary of 256 tokens, and the"),
        ("decoder", {"attention_bias": True}, "attention_bias"),
        ("decoder", {"layer_types": ["chunked_attention"] * 2}, "layer_types"),
    ],
)
def test_parts_of_t5gemma_that_are_refused(
    gemma: TextToText, part: str, changes: dict[str, Any], message: str
) -> None:
    parts = gemma_config(gemma)
    parts[part] |= changes
    with pytest.raises(ModelConfigError, match=message):
        build(ModelSource.open(gemma.path, parts), BuildOptions())


def gemma_config(gemma: TextToText) -> dict[str, dict[str, Any]]:
    """The configurations of both parts."""
    config = json.loads((gemma.path / "config.json").read_text())
    return {part: config[part] for part in ("encoder", "decoder")}


def test_new_weights(bart: TextToText, tmp_path: Path) -> None:
    other = model(tmp_path, "bart")
    own = text(1, 12)
    with bart.llm(**BIG) as llm:
        (before,) = bart.generate_texts(llm, [own])
        llm.update_weights(other.path)
        (after,) = bart.generate_texts(llm, [own])
    assert np.array_equal(before.choices[0].token_ids, after.choices[0].token_ids)
