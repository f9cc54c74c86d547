"""Drafts beside images and audio: tokens are those of `transformers`, regardless of what guesses
them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer

from tests.media.audio_models import PLACEHOLDER, audio, qwen2_audio
from tests.media.media_model import Item, MediaTestModel, text
from tests.media.qwen_vl_models import image, make_image_model
from tests.parity.tiny_models import QWEN2_VL_PLACEHOLDER, make

IMAGE = [QWEN2_VL_PLACEHOLDER]
# So that any token has a follower, which the text proposes.
EVERY_TOKEN = list(range(5, 257))
METHODS: Mapping[str, dict[str, Any]] = {
    "ngram": {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_min": 1},
    "suffix": {"method": "suffix", "num_speculative_tokens": 3},
}


@pytest.fixture(scope="module")
def qwen(tmp_path_factory: pytest.TempPathFactory) -> MediaTestModel:
    return make_image_model("qwen2_5_vl", tmp_path_factory.mktemp("qwen2_5_vl"))


def _check(
    model: MediaTestModel,
    drafts: dict[str, Any],
    prompts: Sequence[list[int]],
    media: Sequence[Sequence[Item]],
    **options: Any,
) -> tuple[int, int]:
    """All outputs are right; the numbers of drafts and of accepted ones."""
    options = {"max_model_len": 400, **options}
    with model.llm(speculative_config=drafts, **options) as llm:
        for _ in range(2):  # the second time behind cached prefixes, and outputs that are known
            for output, own in zip(model.generate(llm, prompts, media), media, strict=True):
                model.check(output, own)
        stats = llm._engine.stats()
        return stats.draft_tokens, stats.accepted_draft_tokens


@pytest.mark.parametrize("method", sorted(METHODS))
def test_drafts_from_text_behind_images(method: str, qwen: MediaTestModel) -> None:
    prompts = [text(2, 4) + IMAGE + EVERY_TOKEN, EVERY_TOKEN, EVERY_TOKEN + IMAGE + text(3, 2)]
    images = [[image(2, 4, 10)], [], [image(1, 6, 6)]]
    drafted, accepted = _check(qwen, METHODS[method], prompts, images)
    assert drafted > 0
    if method == "suffix":
        assert accepted > 0, "a request that comes again is guessed"


def test_placeholders_may_be_drafts(qwen: MediaTestModel) -> None:
    """Any token is followed by an image in the text; as a draft its placeholder is a token like
    others."""
    prompt = [token for each in EVERY_TOKEN for token in (each, *IMAGE)]
    images = [image(4, 2, 2)] * len(EVERY_TOKEN)  # of one token
    drafted, _ = _check(
        qwen,
        METHODS["ngram"],
        [prompt],
        [images],
        max_model_len=512,
        limit_mm_per_prompt={"image": len(images)},
    )
    assert drafted > 0


def test_drafts_from_text_behind_audio(tmp_path: Path) -> None:
    model = qwen2_audio(tmp_path)
    drafted, _ = _check(
        model,
        METHODS["ngram"],
        [[PLACEHOLDER, *EVERY_TOKEN], EVERY_TOKEN],
        [[audio(1, 5000)], []],
    )
    assert drafted > 0


def _name_tokens(model: MediaTestModel, path: Path) -> None:
    """The draft model has the tokens of the model."""
    Tokenizer.from_file(str(model.path / "tokenizer.json")).save(str(path / "tokenizer.json"))


def _by_model(path: Path) -> dict[str, Any]:
    return {"method": "draft_model", "model": str(path), "num_speculative_tokens": 3}


@pytest.mark.parametrize("options", [{}, {"max_num_batched_tokens": 13}], ids=["whole", "chunks"])
def test_a_draft_model_of_text_behind_images(
    options: dict[str, Any], qwen: MediaTestModel, tmp_path: Path
) -> None:
    """It reads placeholders as tokens."""
    make("llama", tmp_path, seed=5)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"max_position_embeddings": 512}))
    _name_tokens(qwen, tmp_path)
    prompts = [text(2, 4) + IMAGE + text(5, 20), text(3, 9), IMAGE + text(4, 1)]
    images = [[image(2, 4, 10)], [], [image(1, 6, 6)]]
    drafted, _ = _check(qwen, _by_model(tmp_path), prompts, images, **options)
    assert drafted > 0


def test_a_draft_model_with_an_encoder_reads_text_alone(qwen: MediaTestModel) -> None:
    """Drafts of the model itself are right if there are no images before them."""
    drafts = _by_model(qwen.path)
    drafted, accepted = _check(qwen, drafts, [text(3, 9), text(5, 30)], [[], []])
    assert accepted == drafted > 0
    prompts = [text(2, 4) + IMAGE + text(5, 20), IMAGE + text(4, 1)]
    drafted, _ = _check(qwen, drafts, prompts, [[image(2, 4, 10)], [image(1, 6, 6)]])
    assert drafted > 0
