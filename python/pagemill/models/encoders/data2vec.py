"""Data2Vec for text: RoBERTa under another prefix."""

from __future__ import annotations

from pagemill.models.base import Config
from pagemill.models.config_keys import number
from pagemill.models.encoders.encoder import Encoder


class Data2VecModel(Encoder):
    """One Data2Vec encoder of text."""

    base_prefix = "data2vec_text."

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.typed = False
        self.first_position = int(number(config, "pad_token_id", 1, least=0)) + 1
