"""Whisper through the engine: an encoder's rows are the first tokens of its decoder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pagemill.models.base import ModelConfigError
from pagemill.ops.shard import Shard
from pagemill.runner.build import BuildOptions, build, model_shapes
from pagemill.weights.errors import WeightsError
from pagemill.weights.source import ModelSource
from transformers import (
    WhisperForConditionalGeneration,
)

from tests.families.rounded_matrices import chosen_matrices, rounded, write_values
from tests.media.media_model import MediaTestModel, text
from tests.media.whisper_models import AUDIO, FRONT, MOST, recording, whisper, with_reference


@pytest.fixture(scope="module", name="model")
def _model(tmp_path_factory: pytest.TempPathFactory) -> MediaTestModel:
    return whisper(tmp_path_factory.mktemp("whisper"))


@pytest.mark.parametrize("executor", ["native", "torch"])
def test_tokens_of_several_requests(model: MediaTestModel, executor: str) -> None:
    prompts = [AUDIO + text(1, 4), AUDIO + text(2, 1), AUDIO + text(3, 17), AUDIO + text(4, 2)]
    audios = [[recording(1)], [recording(2, 999)], [recording(3)], [recording(1)]]
    assert model.check_all(prompts, audios, executor=executor, max_model_len=FRONT + 90) == 3, (
        "equal recordings are encoded once"
    )


@pytest.mark.parametrize("step", [21, 22, 23, 32])
def test_steps_of_media_of_text_and_of_both(model: MediaTestModel, step: int) -> None:
    """A step of a recording alone, which ends where the text begins, and longer ones."""
    prompts = [AUDIO + text(1, 9), AUDIO + text(2, 3)]
    audios = [[recording(1)], [recording(2)]]
    options = {"max_num_batched_tokens": step, "max_model_len": FRONT + 90}
    with model.llm(**options) as llm:
        for output, own in zip(model.generate(llm, prompts, audios), audios, strict=True):
            model.check(output, own)


def test_prefixes_are_those_of_equal_recordings(model: MediaTestModel) -> None:
    """Also where another text follows; KV of a block depends on the recording."""
    first, other = text(1, 20), text(2, 20)
    with model.llm(max_model_len=FRONT + 90) as llm:
        cached: list[int] = []
        for ids, own in [(first, 1), (first, 2), (first, 1), (other, 1)]:
            (output,) = model.generate(llm, [AUDIO + ids], [[recording(own)]])
            model.check(output, [recording(own)])
            cached.append(output.num_cached_tokens)
        assert cached == [0, 0, 32, 16]


def test_preempted_requests_hear_again(model: MediaTestModel) -> None:
    prompts = [AUDIO + text(i, 40) for i in range(4)]
    audios = [[recording(i)] for i in range(4)]
    page = 2 * 40 * 16 * 4 * 3  # bytes: keys and values of three layers
    options = {"max_model_len": 80, "kv_cache_memory_bytes": f"{page * 9}B", "max_step_ms": 0}
    with model.llm(**options) as llm:
        outputs = model.generate_together(llm, prompts, audios)
        for output, own in zip(outputs, audios, strict=True):
            model.check(output, own)
        assert llm._engine.stats().num_preemptions > 0


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_caches_and_activations_in_16_bits(model: MediaTestModel, dtype: str) -> None:
    """The largest error of a log probability is that of 8 bits of precision, in few layers."""
    prompt, own = AUDIO + text(1, 6), [recording(1)]
    tokens: list[list[int]] = []
    log_probabilities: list[np.ndarray] = []
    for options in ({}, {"kv_cache_dtype": "bf16", "dtype": dtype}):
        with model.llm(max_model_len=FRONT + 90, **options) as llm:
            (output,) = model.generate(llm, [prompt], [own], logprobs=0)
            found = output.choices[0].logprobs
            assert found is not None
            tokens.append(output.choices[0].token_ids)
            log_probabilities.append(np.array([each.logprob for each in found]))
    # Behind the first other token, texts differ.
    alike = int(np.cumprod(np.equal(*tokens)).sum())
    assert alike > 1
    expected, found = (each[:alike] for each in log_probabilities)
    np.testing.assert_allclose(found, expected, rtol=0, atol=0.2)


def test_ranks(model: MediaTestModel) -> None:
    """Rank 0 hears, both decode."""
    prompts = [AUDIO + text(1, 9), AUDIO + text(2, 3)]
    audios = [[recording(1)], [recording(2)]]
    options = {"max_num_batched_tokens": 22, "max_model_len": FRONT + 90}
    with model.llm(tensor_parallel_size=2, **options) as llm:
        for output, own in zip(model.generate(llm, prompts, audios), audios, strict=True):
            model.check(output, own)


def test_what_is_no_recording_is_refused(model: MediaTestModel) -> None:
    with model.llm(max_model_len=FRONT + 90) as llm:

        def refuse(message: str, prompt: list[int], *audios: np.ndarray) -> None:
            model.check_refused(llm, prompt, audios, message)

        refuse("has one recording, this one has 0", text(1, 3))
        refuse("begin", text(1, 3) + AUDIO, recording(1))
        refuse("has tokens behind its recording", AUDIO, recording(1))
        refuse("has one recording, this one has 2", AUDIO + AUDIO, recording(1), recording(2))
        refuse(r"at most 6720 .* got \[6721\]", AUDIO, recording(1, MOST + 1))
        refuse(r"at most 6720 .* got \[0\]", AUDIO, recording(1, 0))
        refuse(r"at most 6720 .* got \[900, 2\]", AUDIO, recording(1, 1800).reshape(900, 2))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"language_only": True}, "needs its encoder: leave out --language-model-only"),
        ({"refused_media": frozenset({"audio"})}, "allow audio in --limit-mm-per-prompt"),
        ({"prompt_embeds": True}, "takes no prompt embeddings"),
        ({"prompt_embeds": True, "language_only": True}, "takes no prompt embeddings"),
    ],
)
def test_options_that_it_cannot_have(
    model: MediaTestModel, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ModelConfigError, match=message):
        build(ModelSource.open(model.path), BuildOptions(**options))


def test_heads_of_alignment(model: MediaTestModel, tmp_path: Path) -> None:
    """They are those of the files, and not looked for in a part of a model."""

    def alignment(heads: Any, shard: Shard | None = None) -> tuple[int, int] | None:
        source = ModelSource.open(model.path, {"alignment_heads": heads})
        return build(source, BuildOptions(shard=shard or Shard())).alignment

    heads = [[2, 3], [0, 1], [2, 0]]
    assert alignment(heads) == (3, 10)
    assert alignment(heads, Shard(0, 2)) is None
    assert alignment(None) is None and alignment([]) is None
    for wrong in (3, [3], [[0, 4]], [[3, 0]], [[0, -1]], [[0]], [[0, "1"]]):
        with pytest.raises(ModelConfigError, match="alignment_heads"):
            alignment(wrong)
    for file in model.path.iterdir():
        if file.name != "generation_config.json":
            (tmp_path / file.name).symlink_to(file)
    (tmp_path / "generation_config.json").write_text(json.dumps({"alignment_heads": heads}))
    assert build(ModelSource.open(tmp_path), BuildOptions()).alignment == (3, 10)


def test_tensors_are_known_without_files(model: MediaTestModel) -> None:
    source = ModelSource.open(model.path)
    shapes = model_shapes(source, BuildOptions())
    assert shapes.keys() == {tensor.name for tensor in source.tensors}


@pytest.mark.parametrize("key", ["decoder_layers", "decoder_ffn_dim", "max_target_positions"])
def test_sizes_larger_than_the_files_are_refused(model: MediaTestModel, key: str) -> None:
    source = ModelSource.open(model.path, {key: 2**30})
    with pytest.raises(WeightsError, match=f"the configuration's {key} is 1073741824"):
        build(source, BuildOptions())


@pytest.mark.parametrize("name", ["fp8", "int8"])
def test_quantized_at_load(name: str, tmp_path: Path) -> None:
    """The decoder's matrices are those that are rounded."""
    sizes = {"d_model": 64, "encoder_ffn_dim": 64, "decoder_ffn_dim": 96}
    (tmp_path / "values").mkdir()
    (tmp_path / "model").mkdir()
    model = whisper(tmp_path / "model", **sizes)
    source = rounded(model.path, name, tmp_path)
    names = {matrix.tensor.name for matrix in chosen_matrices(model.path)}
    assert len(names) == 3 * 10 and all(".decoder.layers." in each for each in names)
    write_values(model.path, source, tmp_path / "values")
    reference = WhisperForConditionalGeneration.from_pretrained(tmp_path / "values")
    exact = with_reference(model.path, reference)
    prompt, own = AUDIO + text(1, 6), [recording(1)]
    options = {"quantization": name, "cache_dir": str(tmp_path)}
    with model.llm(max_model_len=FRONT + 90, **options) as llm:
        (output,) = model.generate(llm, [prompt], [own], logprobs=0)
        exact.check(output, own)
