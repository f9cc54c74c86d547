"""Adapters offline."""

from __future__ import annotations

from pathlib import Path

import pagemill
import pytest
from pagemill.engine.outputs import EngineError

from tests.adapters.smollm2_adapter import write_adapter
from tests.parity.model_path import model_path

PROMPT = "The capital of France is"


def test_prompts_with_an_adapter(tmp_path: Path) -> None:
    model = str(model_path("PAGEMILL_TEST_SMOLLM2_GGUF"))
    nothing, loud = write_adapter(tmp_path / "nothing", 0), write_adapter(tmp_path / "loud", 1)
    options = {"lora_modules": [f"nothing={nothing}"], "lora_folder": str(loud.parent)}
    with pagemill.LLM(model, **options, max_model_len=128) as llm:

        def text(adapter: str) -> str:
            (output,) = llm.generate(PROMPT, adapter=adapter, temperature=0.0)
            assert "".join(llm.stream(PROMPT, adapter=adapter, temperature=0.0)) == (
                output.choices[0].text
            )
            return output.choices[0].text

        assert "Paris" in text("")
        assert text("nothing") == text("") != text("loud")
        with pytest.raises(EngineError, match="`other` does not exist"):
            llm.generate(PROMPT, adapter="other")
    with pagemill.LLM(model, max_model_len=128) as llm:
        with pytest.raises(EngineError, match="`other` does not exist"):
            llm.generate(PROMPT, adapter="other")
        with pytest.raises(EngineError, match="enable_lora"):
            _ = llm.adapters
