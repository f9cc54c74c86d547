"""Images of PaliGemma through the engine: all tokens of a prompt see each other, and what is
generated is that of `transformers`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pagemill.config import ConfigError
from pagemill.engine.llm import LLM
from pagemill.engine.outputs import EngineError
from pagemill.inputs.prepared_media import PreparedMedia
from pagemill.runner.build import BuildOptions, build
from pagemill.weights.source import ModelSource
from safetensors.torch import load_file, save_file
from transformers import PaliGemmaConfig, PaliGemmaForConditionalGeneration, PreTrainedModel

from tests.media.media_model import (
    Item,
    MediaTestModel,
    encoded,
    encoder_outputs,
    newer_name,
    text,
)
from tests.parity.tiny_models import TEXT_SIZES, save

PLACEHOLDER = 3
IMAGE = [PLACEHOLDER]
SHAPE = (3, 24, 24)
TOKENS = 9  # of an image
_VISION: dict[str, Any] = {
    "model_type": "siglip_vision_model",
    "hidden_size": 48,
    "intermediate_size": 72,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "image_size": SHAPE[1],
    "patch_size": 8,
    "projection_dim": TEXT_SIZES["hidden_size"],
    "vision_use_head": False,
}
_TEXTS: dict[str, dict[str, Any]] = {
    "paligemma": {"model_type": "gemma"},
    # A window as long as the longest prompt: what is generated does not see all of it.
    "paligemma2": {
        "model_type": "gemma2",
        "query_pre_attn_scalar": 48,
        "sliding_window": 44,
        "layer_types": ["sliding_attention", "full_attention"],
    },
}


def paligemma(kind: str) -> PreTrainedModel:
    config = PaliGemmaConfig(
        vision_config=_VISION,
        text_config=TEXT_SIZES | {"head_dim": 32} | _TEXTS[kind],
        image_token_index=PLACEHOLDER,
        projection_dim=TEXT_SIZES["hidden_size"],
        hidden_size=TEXT_SIZES["hidden_size"],
        vocab_size=TEXT_SIZES["vocab_size"],
    )
    config._attn_implementation = "eager"
    return PaliGemmaForConditionalGeneration(config)


class PrefixTestModel(MediaTestModel):
    """A checkpoint whose prompts see all of themselves."""

    def __init__(self, path: Path, reference: PreTrainedModel) -> None:
        super().__init__(path, lambda ids, images: self.logits(ids, [], images))
        self._model = reference

    def logits(
        self, prompt: list[int], generated: list[int], media: Sequence[Item]
    ) -> torch.Tensor:
        types = torch.tensor([[0] * len(prompt) + [1] * len(generated)])
        pixels = torch.tensor(np.stack(media)) if media else None
        with torch.inference_mode():
            found = self._model(
                torch.tensor([prompt + generated]),
                pixel_values=pixels,
                token_type_ids=types,
                use_cache=False,
            )
        return found.logits[0]


@pytest.fixture(scope="module", params=_TEXTS)
def model(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> PrefixTestModel:
    path = tmp_path_factory.mktemp(request.param)
    torch.manual_seed(0)
    return PrefixTestModel(path, save(paligemma(request.param), path))


def image(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=SHAPE).astype(np.float32)


ONE, OTHER = image(1), image(2)
PROMPTS = [
    IMAGE + IMAGE + text(2, 9),
    IMAGE + text(4, 4),
    text(5, 30),
    text(6, 3) + IMAGE + text(7, 5),
]
IMAGES = [[ONE, OTHER], [OTHER], [], [ONE]]


@pytest.mark.parametrize("executor", ["native", "torch"])
def test_prompts_see_all_of_themselves(model: PrefixTestModel, executor: str) -> None:
    with model.llm(executor=executor) as llm:
        outputs = model.generate(llm, PROMPTS, IMAGES, logprobs=0)
        for output, own in zip(outputs, IMAGES, strict=True):
            assert output.prompt_token_ids.count(PLACEHOLDER) == TOKENS * len(own)
            model.check(output, own)
        assert encoded(llm) == 2, "equal images are encoded once"


def test_prompts_that_begin_alike_share_no_blocks(model: PrefixTestModel) -> None:
    """The KV of a prompt's first tokens depends on its last ones."""
    start = IMAGE + text(1, 11)
    with model.llm(block_size=8) as llm:
        for end in (text(2, 5), text(3, 5), text(2, 5)):
            (output,) = model.generate(llm, [start + end], [[ONE]], logprobs=0)
            model.check(output, [ONE])
            assert output.num_cached_tokens == 0


def test_a_prompt_runs_in_one_step(model: PrefixTestModel) -> None:
    """Steps are as large as the longest prompt, whatever is asked for."""
    with model.llm(max_num_batched_tokens=8, max_model_len=40) as llm:
        outputs = model.generate(llm, PROMPTS, IMAGES, logprobs=0)
        for output, own in zip(outputs, IMAGES, strict=True):
            model.check(output, own)
        with pytest.raises(EngineError, match="maximum context length is 40 tokens") as refused:
            model.generate(llm, [text(1, 41)], [[]])
        assert refused.value.code == "INVALID_ARGUMENT"


def test_preempted_requests_see_their_prompts_again(model: PrefixTestModel) -> None:
    prompts = [IMAGE + text(i + 9, 20) for i in range(4)]
    page = 2 * 2 * 32 * 8 * 4  # bytes of a layer's keys and values
    options = {"max_model_len": 48, "block_size": 8, "max_step_ms": 0}
    with model.llm(**options, kv_cache_memory_bytes=f"{page * 2 * 10}B") as llm:
        outputs = model.generate_together(llm, prompts, [[ONE]] * 4)
        for output in outputs:
            model.check(output, [ONE])
        assert llm._engine.stats().num_preemptions > 0


def test_drafts_behind_a_prompt(model: PrefixTestModel) -> None:
    prompt = IMAGE + text(1, 8) * 2
    drafts = {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_min": 1}
    with model.llm(speculative_config=drafts) as llm:
        (output,) = model.generate(llm, [prompt], [[ONE]], logprobs=0)
        model.check(output, [ONE])


def test_it_drafts_for_no_other_model(model: PrefixTestModel) -> None:
    drafts = {"model": str(model.path), "num_speculative_tokens": 3}
    with (
        pytest.raises(ConfigError, match="the tokens of its prompts see each other"),
        model.llm(speculative_config=drafts),
    ):
        pass


def test_encoders_of_both_executors(model: PrefixTestModel) -> None:
    (encoder,) = build(ModelSource.open(model.path), BuildOptions()).encoders
    items = [encoder.features(PreparedMedia("image", each)) for each in (ONE, OTHER)]
    native, expected = encoder_outputs(encoder, items)
    assert len(expected) == 2 * TOKENS
    np.testing.assert_allclose(native, expected, rtol=0, atol=2e-5)


def test_newer_checkpoints_have_other_names(model: PrefixTestModel, tmp_path: Path) -> None:
    tensors = load_file(model.path / "model.safetensors")
    save_file({newer_name(name): t for name, t in tensors.items()}, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_bytes((model.path / "config.json").read_bytes())
    built = build(ModelSource.open(tmp_path), BuildOptions())
    assert "model.multi_modal_projector." in built.encoders[0].program_text


def test_texts_are_embedded_by_all_of_their_tokens(model: PrefixTestModel) -> None:
    """A text runs in one step, too, and the last token is not what counts."""
    built = build(ModelSource.open(model.path), BuildOptions(pooling="mean"))
    assert not built.chunked_prefill and not built.prefix_caching
    prompt = text(1, 20)
    with LLM(str(model.path), pooling_type="mean", max_model_len=64, pack_cache=False) as llm:
        (vector,) = llm.embed([prompt])
    hidden = model._model.model(
        torch.tensor([prompt]), token_type_ids=torch.zeros(1, 20, dtype=torch.long)
    ).last_hidden_state[0]
    expected = torch.nn.functional.normalize(hidden.mean(0), dim=0).detach().numpy()
    np.testing.assert_allclose(vector, expected, atol=1e-2)


def test_images_that_do_not_fit_are_refused(model: PrefixTestModel) -> None:
    with model.llm() as llm, pytest.raises(EngineError, match=r"must be \[3, 24, 24\]"):
        model.generate(llm, [IMAGE], [[ONE[:, 8:]]])


def test_text_alone(model: PrefixTestModel) -> None:
    model.check_language_model_only("vision_tower", ONE)


def test_ranks_and_stages_of_text(model: PrefixTestModel) -> None:
    model.check_divided()
