"""The tree has no word or name that it must not have, and the lint sees those."""

import pytest

from tests.lint import words
from tests.source_tree import SourceFile, source_files


def test_real_tree():
    # The tests of the lint have to spell what it looks for.
    files = [file for file in source_files() if file.path != "tests/lint/words_test.py"]
    assert files
    errors = [line for file in files for line in words.errors(file)]
    assert not errors, "\n".join(errors)


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("docs/a.md", "see /work/main/x"),
        ("docs/a.md", "cd /root/x"),
        ("tools/a", 'open("/tmp/model.gguf")'),
        ("tools/a", "--index-url https://pypi.org/simple"),
        ("cc/base/a.h", "// Nobody reads it."),
        ("docs/a.md", "all but for one"),
        ("docs/a.md", "the block is given back"),
        ("docs/a.md", "null where it has none"),
        ("docs/a.md", "in tiles of AMX"),
        ("docs/a.md", "waits for somebody"),
        ("docs/a.md", "each client hears of it"),
        ("docs/a.md", "the youngest request gives way"),
        ("docs/a.md", "a later turn has gone on from it"),
        ("docs/a.md", "8 is no multiple of 16"),
        ("cc/base/a.h", "// Of the oldest step."),
        ("cc/base/a.h", "  // Is it the last one?"),
        ("cc/ops/linear/a.h", "int64_t StripBytes();"),
        ("cc/ops/linear/a.h", "// Two panels."),
        ("cc/base/utils.h", ""),
        ("python/pagemill/helpers/a.py", ""),
        ("python/pagemill/engine/a.py", "import os\nos.environ['A']"),
        ("cc/base/a.cc", 'std::getenv("A")'),
        ("python/pagemill/config/env.py", "\n".join(f'"PAGEMILL_{n}"' for n in range(9))),
    ],
)
def test_offence_is_seen(path: str, text: str):
    assert len(list(words.errors(SourceFile(path, text)))) == 1


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("docs/a.md", "the homework/main of https://example.org/work/a"),
        ("python/pagemill/config/env.py", "os.environ"),
        ("python/pagemill/engine/a_test.py", "os.environ"),
        ("cc/base/target.h", "// not getenv"),
        ("docs/a.md", "all but the last; what is given is back"),
        ("docs/a.md", "panels of a dashboard, AMX tiles"),
        ("docs/a.md", "work goes on; of the two, the way to give it"),
        ("cc/base/a.h", "// True if it is the last one. Of a kind?"),
        ("cc/ops/linear/a.h", "// Striped."),
    ],
)
def test_rightful_text_passes(path: str, text: str):
    assert list(words.errors(SourceFile(path, text))) == []
