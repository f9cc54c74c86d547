"""The default model's tokenizer and template against `transformers`.

PAGEMILL_TEST_SMOLLM2_GGUF names its GGUF file; outside Bazel the tests are skipped without it.
"""

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import pre_tokenizers

from pagemill.render.renderer import Renderer
from pagemill.weights.gguf import GgufFile

TEXTS = [
    "Hello world",
    "  two  spaces   three ",
    "tabs\t\tand\nnew\r\nlines\n\n\n",
    "x =  7\n\n  42   ½ ² ²",
    "In 2024, 12345 + 7 = 12352; 3.14 and 1,000,000",
    "日本語のテキスト 中文测试 한국어 시험",
    "😀 👩‍👩‍👧‍👦 🇩🇪 e\u0301 ñ ﬁ Å",
    "def f(x: int) -> str:\n    return f'{x ** 2}'  # ok\n\tif x:\n",
    '{"a": [1, 2, {"b": null}], "c": "\\u00e9"}',
    "I'm you're THEY'LL he'd 'tis",
    "العربية עברית ไทย हिन्दी",
    "a" * 300 + "b",
    "\u0000\x01\x7f\u200b\u2028\ufeff\ufffd",
    "<|im_start|>user\nhi<|im_end|>\n<|endoftext|> <repo_name>",
    "▁ Ġ Ċ <0x0A> [INST] <s> </s>",
    "",
    " ",
]


class _Source:
    path = Path()
    config: dict[str, Any] = {}

    def __init__(self, gguf: GgufFile) -> None:
        self.gguf = gguf


@pytest.fixture(name="path", scope="module")
def _path() -> Path:
    value = os.environ.get("PAGEMILL_TEST_SMOLLM2_GGUF")
    if value is None:
        assert "TEST_SRCDIR" not in os.environ, "the BUILD file does not name the model"
        pytest.skip("PAGEMILL_TEST_SMOLLM2_GGUF is not set")
    return Path(value)


@pytest.fixture(name="ours", scope="module")
def _ours(path: Path) -> Renderer:
    return Renderer.open(_Source(GgufFile.open(path)))


@pytest.fixture(name="theirs", scope="module")
def _theirs(path: Path) -> Any:
    transformers = pytest.importorskip("transformers")
    tokenizer = transformers.AutoTokenizer.from_pretrained(str(path.parent), gguf_file=path.name)
    # SmolLM2's own tokenizer.json cuts digits out first, and so says the file ("smollm");
    # transformers leaves that step out when it reads a GGUF file.
    backend = tokenizer.backend_tokenizer
    digits = pre_tokenizers.Digits(individual_digits=True)
    backend.pre_tokenizer = pre_tokenizers.Sequence([digits, backend.pre_tokenizer])
    return tokenizer


@pytest.mark.parametrize("text", TEXTS)
def test_ids_and_text(ours: Renderer, theirs: Any, text: str) -> None:
    ids = ours.encode(text, parse_special=True)
    assert ids == theirs.encode(text)
    assert ours.decode(ids, skip_special_tokens=False) == theirs.decode(ids) == text


@given(text=st.text(max_size=80))
@settings(max_examples=500, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_random_text(ours: Renderer, theirs: Any, text: str) -> None:
    assert ours.encode(text, parse_special=True) == theirs.encode(text)


def test_chat(ours: Renderer, theirs: Any) -> None:
    chats = [
        [{"role": "user", "content": "Hi"}],
        [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "2  + 2?"}],
        [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}] * 3,
    ]
    for messages in chats:
        for prompt in (True, False):
            text = theirs.apply_chat_template(
                messages, tokenize=False, add_generation_prompt=prompt
            )
            assert ours.render_chat(messages, add_generation_prompt=prompt).text == text
            assert ours.encode_prompt(
                ours.render_chat(messages, add_generation_prompt=prompt)
            ) == theirs.encode(text)
    assert ours.eos_token_ids == (2,)
    assert ours.vocab_size == 49152
