"""ColPali, ColQwen2 and ColQwen3: PaliGemma, Qwen2-VL and Qwen3-VL for retrieval of pages by their
images. Each token's vector goes through one linear layer (runner/tail.py), and vectors are compared
by late interaction (arXiv 2407.01449).

Configuration: that of the model in `vlm_config`; ColQwen3's may be the model's own.
Weights: the model's behind `vlm.`, and `embedding_proj_layer` or `custom_text_proj`
(published_names.py).
"""

from __future__ import annotations

from typing import Self

from pagemill.models.base import LIMIT, Config
from pagemill.models.config_keys import inner_config
from pagemill.models.multimodal.language_part import LanguagePart
from pagemill.models.multimodal.paligemma import PaliGemmaModel
from pagemill.models.multimodal.qwen2_vl import Qwen2VlModel
from pagemill.models.multimodal.qwen3_vl import Qwen3VlModel


class ColPaliModel(PaliGemmaModel):
    """One ColPali model."""

    @classmethod
    def from_config(cls, config: Config) -> Self:
        return super().from_config(model_config(config))


class ColQwen2Model(Qwen2VlModel):
    """One ColQwen2 model."""

    @classmethod
    def from_config(cls, config: Config) -> Self | LanguagePart:
        return super().from_config(model_config(config))


class ColQwen3Model(Qwen3VlModel):
    """One ColQwen3 model."""

    @classmethod
    def from_config(cls, config: Config) -> Self | LanguagePart:
        nested = config.get("vlm_config") is not None
        return super().from_config(model_config(config) if nested else config)


def model_config(config: Config) -> Config:
    """The configuration of the model in a model for retrieval.

    Raises:
        ModelConfigError: there is none.
    """
    limit = {LIMIT: config[LIMIT]} if LIMIT in config else {}
    return {**inner_config(config, "vlm_config"), **limit}
