"""A tiny model in the engine, whose answers must be those of `transformers`."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from pagemill import _native
from pagemill.engine.core import EngineCore
from pagemill.runner.build import BuildOptions, build
from pagemill.weights.source import ModelSource
from transformers import PreTrainedModel

from tests.parity import small_engine
from tests.parity.greedy import wrong_tokens
from tests.parity.small_engine import Answer, random_prompt

PROMPT, GENERATED, MODEL_LEN = 150, 20, 256  # tokens
# Either of two logits may be off by 1e-4 of logits of about 5 (tests/families/families_test.py).
_NEAR_TIE = 1e-3


class Model:
    """A saved model with its reference, and how its caches are paged."""

    def __init__(self, path: Path, reference: PreTrainedModel) -> None:
        self.path = path
        self.reference = reference
        self._text = build(ModelSource.open(path), BuildOptions()).program_text
        groups = self._groups()
        self.grows = any(group.kind == "full" for group in groups)
        self.block = max(group.block_size for group in groups)
        options = _native.ExecutorOptions(kv_cache_dtype="f32")
        self.page_bytes = _native.plan_memory(self._text, options).kv_page_bytes

    def _groups(self, drafts: int = 0) -> list[_native.KvGroupOptions]:
        options = _native.ExecutorOptions(kv_cache_dtype="f32", max_draft_tokens=drafts)
        return _native.kv_groups(self._text, options)

    def pages(self, tokens: int, *, drafts: int = 0) -> int:
        """The maximum number of pages of a request with this many tokens, and drafts in a step."""
        sizes = {"block_size": 16, "max_step_tokens": 32, "num_tokens": tokens}
        return _native.max_kv_pages(groups=self._groups(drafts), **sizes)

    def prompt(self, seed: int, length: int = PROMPT) -> list[int]:
        return random_prompt(seed, length, self.reference.config.vocab_size)

    def engine(self, **options: Any) -> AbstractContextManager[EngineCore]:
        """An engine of the model in f32, in steps of at most 32 tokens by default."""
        return small_engine.engine(self.path, max_model_len=MODEL_LEN, **options)

    def run(
        self, core: EngineCore, *prompts: list[int], num_tokens: int = GENERATED
    ) -> list[Answer]:
        """The answers to prompts that are submitted together, which must be the right ones."""
        answers = small_engine.generate(core, prompts, num_tokens)
        for prompt, answer in zip(prompts, answers, strict=True):
            wrong = wrong_tokens(self.reference, prompt, answer.tokens, _NEAR_TIE)
            assert not wrong, "\n".join(wrong)
        return answers
