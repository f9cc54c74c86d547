"""`pagemill detect-watermark` on a text that a model with a watermark wrote, and on another one."""

import io
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from pagemill.cli import detect_watermark
from pagemill.config import ConfigError
from pagemill.engine.llm import LLM

SMOLLM2 = os.environ.get("PAGEMILL_TEST_SMOLLM2_GGUF", "")
PROMPT = "The history of the city begins"


@pytest.mark.skipif(not SMOLLM2, reason="PAGEMILL_TEST_SMOLLM2_GGUF is not set")
def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    key, text = tmp_path / "key", tmp_path / "text"
    key.write_text("a secret of the operator")

    def run(written: str, *words: str) -> tuple[int, Any]:
        text.write_text(written, encoding="utf-8")
        parser = detect_watermark.parser()
        words = (SMOLLM2, "--text-file", str(text), *words)
        code = detect_watermark.run(parser, parser.parse_args(words))
        return code, json.loads(capsys.readouterr().out)

    with_key = ("--watermark-key-file", str(key))
    with LLM(SMOLLM2, max_model_len=256, watermark_key_file=str(key)) as llm:
        output = llm.generate(PROMPT, max_tokens=100, ignore_eos=True, temperature=1.0, seed=7)
    code, found = run(output[0].choices[0].text, *with_key)
    assert code == 0 and found["is_watermarked"] and found["p_value"] < 1e-6
    code, found = run(PROMPT, *with_key)
    assert (
        code == detect_watermark.UNMARKED
        and not found["is_watermarked"]
        and found["num_scored_tokens"] < 5
    )
    with pytest.raises(ConfigError, match="--watermark-key-file is needed"):
        run(PROMPT)


def test_standard_input_is_utf_8(monkeypatch: pytest.MonkeyPatch) -> None:
    def read(content: bytes) -> str:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content), "latin-1"))
        return detect_watermark._read("-")  # pyright: ignore[reportPrivateUsage]

    assert read("Zürich".encode()) == "Zürich"
    with pytest.raises(ConfigError, match="--text-file -: .*utf-8"):
        read(b"Z\xfcrich")
