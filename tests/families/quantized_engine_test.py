"""The engine with a model that is quantized at load: new weights, adapters, a draft model."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pagemill import _native
from pagemill.config import EngineConfig, build
from pagemill.engine.draft_model import build_draft
from pagemill.engine.loading import LoadedModel, load
from pagemill.engine.model_plan import built_model
from pagemill.engine.model_weights import ModelWeights
from pagemill.engine.outputs import EngineError
from pagemill.weights.source import ModelSource
from transformers import PreTrainedModel

from tests.adapters.engine_adapters import adapters_of
from tests.adapters.random_adapter import Kind, save_adapter
from tests.families.rounded_matrices import reference, rounded
from tests.parity.converted_checkpoints import FourBits, write_four_bits, write_torchao
from tests.parity.greedy import wrong_tokens
from tests.parity.scaled_checkpoints import SCHEMES, write_scaled
from tests.parity.small_engine import generate, generate_one, random_prompt
from tests.parity.tiny_models import make, tiny_llama

PROMPT = random_prompt(1, 70, 200)
TOKENS = 16
_NEAR_TIE = 1e-3  # tests/parity/engine_model.py
IGNORED = {"ignore": ["layers.0", "re:.*down_proj"]}


def _model(path: Path, seed: int = 0) -> Path:
    path.mkdir()
    make("llama", path, "bf16", seed=seed)
    return path


def _config(model: Path, **options: object) -> EngineConfig:
    exact = {"kv_cache_dtype": "f32", "activation_dtype": "f32", "pack_cache": False}
    flat = {"model": str(model), "cache_dir": str(model.parent / "cache"), "max_model_len": 256}
    return build(EngineConfig, flat | exact | options)


@contextmanager
def _loaded(model: Path, **options: object) -> Iterator[LoadedModel]:
    loaded = load(_config(model, **options))
    try:
        yield loaded
    finally:
        loaded.core.bindings.engine.shutdown()


def _tokens(loaded: LoadedModel) -> list[int]:
    return generate_one(loaded.core, PROMPT, TOKENS)[0]


def test_new_weights_are_rounded_alike(tmp_path: Path) -> None:
    """And the same modules stay as they are."""
    one, two = _model(tmp_path / "one", 1), _model(tmp_path / "two", 2)
    options = {"quantization": "int4", "quantization_config": IGNORED}
    with _loaded(one, **options) as loaded, _loaded(two, **options) as expected:
        before = _tokens(loaded)
        loaded.weights.update_weights(str(two))
        assert before != _tokens(loaded) == _tokens(expected)
        with pytest.raises(_native.StatusError, match="layers.1.*proj.weight"):
            unquantized = ModelSource.open(one)
            weights = ModelWeights(loaded.core.engine, loaded.core.built, unquantized, unquantized)
            weights.update_weights(str(one))


@pytest.mark.parametrize("name", ["fp8", "int8"])
def test_adapters_change_what_rounded_matrices_make(name: str, tmp_path: Path) -> None:
    model, adapter = _model(tmp_path / "model"), tmp_path / "adapter"
    base = reference(model, rounded(model, name, tmp_path / "quantized"))
    merged = save_adapter(adapter, base, Kind(rank=4), 1)
    modules = [f"sql={adapter}"]
    with _loaded(model, quantization=name, lora_modules=modules) as loaded:
        ids = [0, adapters_of(loaded.core).id_of("sql")]
        answers = generate(loaded.core, [PROMPT, PROMPT], TOKENS, ids)
    assert answers[0].tokens != answers[1].tokens
    for answer, expected in zip(answers, (base, merged), strict=True):
        assert not wrong_tokens(expected, PROMPT, answer.tokens, _NEAR_TIE)


@pytest.mark.parametrize("name", ["fp8", "int4"])
def test_dora_is_refused(name: str, tmp_path: Path) -> None:
    """Its gains are of the lengths of rows, which rounding changes."""
    model, adapter = _model(tmp_path / "model"), tmp_path / "adapter"
    base = reference(model, rounded(model, name, tmp_path / "quantized"))
    save_adapter(adapter, base, Kind(rank=4, use_dora=True), 1)
    refused = pytest.raises(EngineError, match="is DoRA, which needs the weight")
    with _loaded(model, quantization=name, enable_lora=True) as loaded, refused:
        adapters_of(loaded.core).load_adapter("sql", str(adapter))


def test_a_draft_model_stays_as_it_is(tmp_path: Path) -> None:
    model = _model(tmp_path / "model")
    drafts = {"method": "draft_model", "model": str(model), "num_speculative_tokens": 4}
    with _loaded(model, quantization="int4") as plain:
        expected = _tokens(plain)
    options = {"quantization": "int4", "speculative_config": drafts}
    with _loaded(model, **options) as loaded:
        draft = build_draft(loaded.source, loaded.core.built, _config(model, **options))
        assert draft is not None
        assert "pack_quantized" in loaded.core.built.program_text
        assert "pack_quantized" not in draft.program_text
        assert _tokens(loaded) == expected
        assert loaded.core.bindings.engine.stats().draft_tokens > 0


def test_four_bits_of_bitsandbytes_with_new_weights_and_a_draft(tmp_path: Path) -> None:
    """All three are converted alike, and such a model may be given its method."""
    one, two = tmp_path / "one", tmp_path / "two"
    small = tiny_llama(intermediate_size=160)
    write_four_bits(small, one, FourBits(nested=True))
    small.model.layers[1].mlp.down_proj.weight.data.neg_()
    write_four_bits(small, two, FourBits(nested=True))
    drafts = {"method": "draft_model", "model": str(two), "num_speculative_tokens": 4}
    options = {"quantization": "bitsandbytes", "speculative_config": drafts}
    with _loaded(one, **options) as loaded, _loaded(two) as expected:
        before = _tokens(loaded)
        assert loaded.core.bindings.engine.stats().draft_tokens > 0
        loaded.weights.update_weights(str(two))
        assert before != _tokens(loaded) == _tokens(expected)


def _write(name: str, directory: Path) -> PreTrainedModel:
    model = tiny_llama(intermediate_size=160)
    if directory.name == "two":
        model.model.layers[1].mlp.down_proj.weight.data.neg_()
    if name == "mxfp8":
        return write_scaled(model, directory, SCHEMES[name])
    return write_torchao(model, directory, name)


@pytest.mark.parametrize("name", ["int8", "float8", "mxfp8"])
def test_elements_of_8_bits_as_stored(name: str, tmp_path: Path) -> None:
    """Of torchao, and MXFP8, whose scales are converted, of new weights, too."""
    one, two = tmp_path / "one", tmp_path / "two"
    references = _write(name, one), _write(name, two)
    with _loaded(one) as loaded:
        files = {Path(tensor.file).parent.name for tensor in loaded.source.tensors}
        assert ("quantized" in files) == (name == "mxfp8")
        tokens = [_tokens(loaded)]
        loaded.weights.update_weights(str(two))
        tokens.append(_tokens(loaded))
    assert tokens[0] != tokens[1]
    for reference_model, found in zip(references, tokens, strict=True):
        assert not wrong_tokens(reference_model, PROMPT, found, _NEAR_TIE)


def test_a_plan_converts_no_draft_model(tmp_path: Path) -> None:
    model = tmp_path / "model"
    write_four_bits(tiny_llama(intermediate_size=160), model, FourBits())
    drafts = {"method": "draft_model", "model": str(model), "num_speculative_tokens": 4}
    planned = built_model(_config(model, speculative_config=drafts))
    assert planned.draft is not None
    files = list((tmp_path / "cache" / "quantized").iterdir())
    assert files and all(file.name.endswith(".empty.safetensors") for file in files)
