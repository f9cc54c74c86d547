"""Tiny models with media and adapters of PEFT, and a batch that is compared with PEFT.

made = adapted("llava", path, target_modules="all-linear")
check_batch(made, max_num_seqs=12)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pagemill.engine.llm import LLM, Output
from peft import PeftModel
from transformers import PreTrainedModel

from tests.adapters.peft_adapters import NAMES, with_adapters
from tests.media.media_model import GENERATED, Item, MediaTestModel, text
from tests.media.phi4_models import image as tiles_of
from tests.media.phi4_models import phi4_multimodal
from tests.media.qwen_vl_models import MAKERS, image, image_model
from tests.parity.tiny_models import LLAVA_IMAGE, make, save

IMAGE = [3]  # the placeholder of all these models


@dataclass(frozen=True)
class Adapted:
    """A model, its reference with the adapters NAMES, which are in folders of `path`, and three
    different images."""

    model: MediaTestModel
    reference: PeftModel
    path: Path
    images: Sequence[Item]

    def check(self, output: Output, images: Sequence[Item], adapter: str) -> None:
        """The output is that of PEFT with this adapter, "" for the model itself."""
        if not adapter:
            with self.reference.disable_adapter():
                self.model.check(output, images)
            return
        self.reference.set_adapter(adapter)
        self.model.check(output, images)

    def load(self, llm: LLM) -> None:
        for name in NAMES:
            llm.adapters.load_adapter(name, str(self.path / name))


def _llava(path: Path) -> tuple[PreTrainedModel, MediaTestModel, Sequence[Item]]:
    reference = make("llava", path)

    def logits(ids: list[int], images: Sequence[np.ndarray]) -> torch.Tensor:
        pixels = torch.tensor(np.stack(images)) if images else None
        with torch.inference_mode():
            return reference(torch.tensor([ids]), pixel_values=pixels, use_cache=False).logits[0]

    random = np.random.default_rng(1)
    images = [random.normal(size=LLAVA_IMAGE).astype(np.float32) for _ in range(3)]
    return reference, MediaTestModel(path, logits), images


def _grid_model(
    make_reference: Callable[[Path], PreTrainedModel],
) -> Callable[[Path], tuple[PreTrainedModel, MediaTestModel, Sequence[Item]]]:
    def made(path: Path) -> tuple[PreTrainedModel, MediaTestModel, Sequence[Item]]:
        reference = make_reference(path)
        images = [image(1, 6, 6), image(2, 4, 10), image(3, 8, 2)]
        return reference, image_model(path, reference), images

    return made


def phi4(path: Path) -> tuple[PreTrainedModel, MediaTestModel, Sequence[Item]]:
    reference, model = phi4_multimodal(path)
    return reference, model, [tiles_of(1, 4, 4), tiles_of(2, 6, 8), tiles_of(3, 4, 5)]


MODELS: dict[str, Callable[[Path], tuple[PreTrainedModel, MediaTestModel, Sequence[Item]]]] = {
    "llava": _llava,
    "qwen2_vl": _grid_model(lambda path: make("qwen2_vl", path)),
    "qwen3_vl_moe": _grid_model(lambda path: save(MAKERS["qwen3_vl_moe"](), path)),
    "glm4v": _grid_model(lambda path: save(MAKERS["glm4v"](), path)),
}


def adapted(family: str, path: Path, **config: Any) -> Adapted:
    torch.manual_seed(0)
    reference, model, images = MODELS[family](path)
    return Adapted(model, with_adapters(reference, path, **config), path, images)


def check_batch(made: Adapted, **options: Any) -> None:
    """Requests with adapters and without, with images and without, share steps."""
    first, second, third = made.images
    prompts = [
        text(1, 3) + IMAGE + text(2, 5) + IMAGE + text(3, 2),
        IMAGE + text(4, 4),
        text(5, 30),
        text(6, 7) + IMAGE + text(7, 2),
    ]
    images = [[first, second], [second], [], [third]]
    adapters = [adapter for adapter in ("", *NAMES) for _ in prompts]
    with made.model.llm(enable_lora=True, max_num_seqs=12, **options) as llm:
        made.load(llm)
        for adapter in ("", *NAMES):
            llm.enqueue(
                prompts,
                images=images,
                adapter=adapter,
                temperature=0.0,
                max_tokens=GENERATED,
                ignore_eos=True,
                logprobs=0,
            )
        outputs = llm.wait_for_completion()
    for output, own, adapter in zip(outputs, images * 3, adapters, strict=True):
        made.check(output, own, adapter)
    tokens = {tuple(output.choices[0].token_ids) for output in outputs}
    assert len(tokens) > 2 * len(prompts), "adapters change tokens, or nothing was tested"
