"""Servers of tiny models that read images, and what tests send them."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from pagemill.engine.llm import LLM
from PIL import Image
from tokenizers import Tokenizer
from tokenizers.decoders import WordPiece
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil
from transformers.models.got_ocr2.image_processing_pil_got_ocr2 import GotOcr2ImageProcessorPil
from transformers.models.idefics3.image_processing_pil_idefics3 import Idefics3ImageProcessorPil
from transformers.models.llava_onevision.image_processing_pil_llava_onevision import (
    LlavaOnevisionImageProcessorPil,
)
from transformers.models.pixtral.image_processing_pil_pixtral import PixtralImageProcessorPil
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

from tests.e2e.server_process import NAME, ServerProcess
from tests.media.tiny_tiled_models import LLAVA_NEXT_PLACEHOLDER, LLAVA_NEXT_SIZES
from tests.parity.tiny_models import (
    INTERNVL_PLACEHOLDER,
    INTERNVL_WORDS,
    LLAVA_PLACEHOLDER,
    PIXTRAL_PLACEHOLDER,
    PIXTRAL_WORDS,
    QWEN2_VL_PLACEHOLDER,
    SMOLVLM_PLACEHOLDER,
    SMOLVLM_WORDS,
)

assert LLAVA_PLACEHOLDER == QWEN2_VL_PLACEHOLDER == SMOLVLM_PLACEHOLDER
assert LLAVA_PLACEHOLDER == INTERNVL_PLACEHOLDER == PIXTRAL_PLACEHOLDER
assert LLAVA_PLACEHOLDER == LLAVA_NEXT_PLACEHOLDER
IMAGE = "<image>"
# Words of the vocabulary around each message, and an image where the message has one.
TEMPLATE = (
    "{% for message in messages %}t20 {% if message['content'] is string %}"
    "{{ message['content'] }}{% else %}{% for part in message['content'] %}"
    "{% if part['type'] == 'image' %} <image> {% else %} {{ part['text'] }} {% endif %}"
    "{% endfor %}{% endif %} t21 {% endfor %}t22"
)
SETTINGS: dict[str, dict[str, Any]] = {
    "internvl": {"size": {"height": 16, "width": 16}, "max_patches": 6},
    "llava": {"size": {"shortest_edge": 24}, "crop_size": {"height": 24, "width": 24}},
    "llava_onevision": {
        "size": {"height": 16, "width": 16},
        "image_grid_pinpoints": [*LLAVA_NEXT_SIZES, [48, 48]],
    },
    "mistral3": {"size": {"longest_edge": 40}, "patch_size": {"height": 8, "width": 8}},
    "qwen2_vl": {"patch_size": 4, "min_pixels": 256, "max_pixels": 4096},
    "qwen3_vl": {"patch_size": 4, "size": {"shortest_edge": 256, "longest_edge": 4096}},
    "smolvlm": {"size": {"longest_edge": 36}, "max_image_size": {"longest_edge": 18}},
}
TYPES = {
    "internvl": "GotOcr2ImageProcessor",
    "llava": "CLIPImageProcessor",
    "llava_onevision": "LlavaOnevisionImageProcessorFast",
    "mistral3": "PixtralImageProcessor",
    "qwen2_vl": "Qwen2VLImageProcessor",
    "qwen3_vl": "Qwen2VLImageProcessorFast",
    "smolvlm": "SmolVLMImageProcessor",
}
PROCESSORS: dict[str, Callable[..., Any]] = {
    "internvl": partial(GotOcr2ImageProcessorPil, crop_to_patches=True),
    "llava": CLIPImageProcessorPil,
    "llava_onevision": LlavaOnevisionImageProcessorPil,
    "mistral3": PixtralImageProcessorPil,
    "qwen2_vl": Qwen2VLImageProcessorPil,
    "qwen3_vl": Qwen2VLImageProcessorPil,
    "smolvlm": partial(Idefics3ImageProcessorPil, return_row_col_info=True),
}
WORDS = {"internvl": INTERNVL_WORDS, "mistral3": PIXTRAL_WORDS, "smolvlm": SMOLVLM_WORDS}
OPTIONS = {
    "max_model_len": 400,
    "max_num_batched_tokens": 128,
    "max_num_seqs": 4,
    "kv_cache_dtype": "f32",
    "activation_dtype": "f32",
}
MAX_TOKENS = 6


def picture(seed: int, width: int = 40, height: int = 30) -> Image.Image:
    """Noise."""
    values = np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)
    return Image.fromarray(values)


CAT, DOG = picture(1), picture(2, 20, 50)


def base64_of(image: Image.Image) -> str:
    """The image's PNG file."""
    file = io.BytesIO()
    image.save(file, "PNG")
    return base64.b64encode(file.getvalue()).decode()


def url(image: Image.Image) -> str:
    """The image as a data: URL."""
    return "data:image/png;base64," + base64_of(image)


@dataclass(frozen=True)
class Served:
    """A running server of a family, and its model's folder."""

    family: str
    path: Path
    server: ServerProcess

    def post(self, route: str, **body: Any) -> httpx.Response:
        return httpx.post(f"{self.server.base_url}{route}", json=body, timeout=60)

    def chat(self, *content: Any, **fields: Any) -> httpx.Response:
        """One message with the parts of `content`: texts, images, or parts."""
        parts = [part_of(each) for each in content]
        message = {"role": "user", "content": parts}
        fields = {"temperature": 0, "max_tokens": MAX_TOKENS, "ignore_eos": True} | fields
        return self.post("/v1/chat/completions", model=NAME, messages=[message], **fields)

    def answers(self, *prompts: tuple[str, list[Image.Image]]) -> list[str]:
        """Texts of the offline model, with images by `transformers`."""
        images = [[processed(self.family, image) for image in own] for _, own in prompts]
        with LLM(str(self.path), **OPTIONS) as llm:
            outputs = llm.generate(
                [text for text, _ in prompts],
                images=images,
                temperature=0.0,
                max_tokens=MAX_TOKENS,
                ignore_eos=True,
                progress=io.StringIO(),
            )
        return [output.choices[0].text for output in outputs]


def processed(family: str, image: Image.Image) -> Any:
    """What the encoder takes, by `transformers`."""
    found = PROCESSORS[family](**SETTINGS[family])(image, return_tensors="np")
    pixels = found["pixel_values"]
    if "image_grid_thw" in found:
        return pixels, tuple(found["image_grid_thw"][0])
    if "rows" in found:
        return pixels[0], (1, found["rows"][0][0], found["cols"][0][0])
    if family == "llava_onevision":
        return pixels[0], (1, *found["image_sizes"][0])
    return pixels if family == "internvl" else pixels[0]


def part_of(content: Any) -> dict[str, Any]:
    if isinstance(content, str):
        return {"type": "text", "text": content}
    if isinstance(content, Image.Image):
        return {"type": "image_url", "image_url": {"url": url(content)}}
    return content


def save_files(family: str, path: Path) -> None:
    """Tokenizer, template and the image processor's settings."""
    # The template writes the placeholder of any family as IMAGE.
    words = WORDS.get(family, {}) | {LLAVA_PLACEHOLDER: IMAGE}
    vocab = {words.get(i, f"t{i}"): i for i in range(257)}
    tokenizer = Tokenizer(WordLevel(vocab, unk_token="t0"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.decoder = WordPiece()
    tokenizer.add_special_tokens([word for word in words.values() if word.strip()])
    tokenizer.save(str(path / "tokenizer.json"))
    (path / "chat_template.jinja").write_text(TEMPLATE)
    settings = {"image_processor_type": TYPES[family]} | SETTINGS[family]
    (path / "preprocessor_config.json").write_text(json.dumps(settings))
