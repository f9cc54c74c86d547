"""Only what is shown reads the wall clock: it jumps, and limits of time must not jump with it.

Deadlines, rates and lifetimes are measured by clocks that are monotonic.
"""

from __future__ import annotations

import re

import pytest

from tests.source_tree import source_files

_WALL_CLOCK = re.compile(
    r"\btime\.time(_ns)?\(|\bdatetime\.(now|today|utcnow)\(|\bsystem_clock\b|\bgettimeofday\b"
    r"|\bCLOCK_REALTIME\b"
)
_SHOWN = {
    "cc/program/weights/file_digest.cc": "whether a file is too young to be known by its time",
    "python/pagemill/observe/adapter_requests.py": "a metric whose value is a time",
    "python/pagemill/quantization/at_load/room.py": "when files were read last",
    "python/pagemill/render/chat_template.py": "the date, for templates that write it",
    "python/pagemill/server/batches/folder.py": "times that outlive a restart of the machine",
    "python/pagemill/server/chat_wording.py": "`created`",
    "python/pagemill/server/completion_wording.py": "`created`",
    "python/pagemill/server/derender/stream.py": "`created`",
    "python/pagemill/server/endpoints/classify.py": "`created`",
    "python/pagemill/server/endpoints/conversations.py": "`created_at`",
    "python/pagemill/server/endpoints/embeddings.py": "`created`",
    "python/pagemill/server/endpoints/generative_scoring.py": "`created`",
    "python/pagemill/server/endpoints/media_embeddings.py": "`created`",
    "python/pagemill/server/endpoints/pooling.py": "`created`",
    "python/pagemill/server/endpoints/score.py": "`created`",
    "python/pagemill/server/records/traces.py": "times of spans",
    "python/pagemill/server/open_model.py": "`created`",
    "python/pagemill/server/responses/request.py": "`created_at`",
    "python/pagemill/server/responses/wording.py": "`completed_at`",
    "python/pagemill/server/speech/wording.py": "`created`",
}


def test_nothing_else_reads_the_wall_clock() -> None:
    found = {
        file.path
        for folder in ("cc", "python")
        for file in source_files(".py", ".cc", ".h", under=folder)
        if _WALL_CLOCK.search(file.text)
        and "_test." not in file.path
        and "testing" not in file.parts
    }
    assert found == set(_SHOWN)


@pytest.mark.parametrize(
    ("text", "reads"),
    [
        ("now = time.time()", True),
        ("std::chrono::system_clock::now()", True),
        ("now = time.monotonic()", False),
        ("loop.time()", False),
    ],
)
def test_the_pattern(text: str, reads: bool) -> None:
    assert bool(_WALL_CLOCK.search(text)) == reads
