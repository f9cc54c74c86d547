"""The Python packages of the real tree follow the table, and the check detects violations."""

import pytest

from tests.layering import python_layers
from tests.source_tree import SourceFile, source_files

_ROOT = "python/pagemill"


def _python_files():
    return list(source_files(".py", under=_ROOT))


def test_real_tree_keeps_to_the_table():
    files = _python_files()
    assert files, "no Python files found"
    offences = python_layers.layer_offences(files)
    assert not offences, "\n".join(offences)


def test_every_package_is_in_the_table_and_exists():
    assert {file.parts[2] for file in _python_files() if len(file.parts) > 3} == set(
        python_layers.USES
    )


@pytest.mark.parametrize("start", ["pagemill", "pagemill.cli", "pagemill.server"])
def test_serving_imports_neither_torch_nor_transformers(start: str):
    assert python_layers.heavy_imports(_python_files(), start) == []


# What a process of `pagemill serve` imports only when it uses it: it takes time at the start, and
# memory in each process.
_NOT_AT_START = {
    "pagemill.server.processes.supervisor": {
        *("pagemill.engine.remote", "pagemill.render", "pagemill.runner", "pagemill.structured"),
        *("pagemill.server.app", "pagemill.server.dispatch", "pagemill.weights", "tokenizers"),
    },
    "pagemill.server.processes.api_process": {
        *("pagemill.engine.core", "pagemill.engine.loading", "pagemill.engine.remote"),
        *("pagemill.models", "pagemill.ops", "pagemill.quantization", "pagemill.runner"),
        *("pagemill.structured.json_schema", "pagemill.structured.guidance"),
    },
    "pagemill.server.processes.engine_process": {
        *("pagemill.engine.remote", "pagemill.render", "pagemill.server.app", "starlette"),
        *("tokenizers", "uvicorn"),
    },
}
_NOT_AT_START["pagemill.server.serve"] = _NOT_AT_START["pagemill.server.processes.supervisor"]


@pytest.mark.parametrize("start", _NOT_AT_START)
def test_a_process_of_a_server_imports_only_what_it_needs(start: str):
    assert python_layers.import_chains(_python_files(), start, _NOT_AT_START[start]) == []


def test_reading_a_model_needs_neither_torch_nor_transformers():
    """Families and quantization methods are found by name, so no import statement reaches them."""
    files, lazy = _python_files(), ("models", "quantization")
    starts = [
        file.path.removeprefix("python/").removesuffix(".py").replace("/", ".")
        for file in files
        if file.parts[2] in lazy and not file.path.endswith("_test.py")
    ]
    assert "pagemill.quantization.awq" in starts
    assert [chain for start in starts for chain in python_layers.heavy_imports(files, start)] == []


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("ops/a.py", "from pagemill.models import llama"),
        ("ops/a.py", "def f():\n    import pagemill.server.app"),
        ("render/a.py", "from pagemill import engine"),
        ("engine/a.py", "from pagemill.render.tokenizer import Tokenizer"),
        ("config/a.py", "from pagemill import _native"),
        ("observe/a.py", "from pagemill.config import env"),
        ("weights/a.py", "from ..runner import bind"),
        ("weights/a.py", "from pagemill.quantization import table"),
        ("quantization/a.py", "from pagemill.layers.base import Weights"),
        ("server/app.py", "from pagemill import engine, render"),
        ("unheard_of/a.py", ""),
    ],
)
def test_offence_is_seen(path: str, text: str):
    assert len(python_layers.layer_offences([SourceFile(f"{_ROOT}/{path}", text)])) == 1


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("cli/serve.py", "from pagemill.server import app"),
        ("server/pipeline.py", "from pagemill import engine, render"),
        ("engine/llm.py", "from pagemill.render import tokenizer"),
        ("engine/a.py", "from pagemill import config, _native, runner"),
        ("quantization/awq.py", "from pagemill.weights import source"),
        ("models/llama.py", "from . import base\nfrom pagemill.layers import mlp"),
        ("__init__.py", "from pagemill.engine import LLM"),
    ],
)
def test_rightful_import_passes(path: str, text: str):
    assert python_layers.layer_offences([SourceFile(f"{_ROOT}/{path}", text)]) == []


def _toy_tree(text_of_b: str) -> list[SourceFile]:
    files = {"__init__": "from pagemill import a", "a": "import pagemill.b", "b": text_of_b}
    return [SourceFile(f"{_ROOT}/{name}.py", text) for name, text in files.items()]


def test_heavy_import_is_found_through_modules():
    (chain,) = python_layers.heavy_imports(_toy_tree("import torch"), "pagemill")
    assert chain.startswith("pagemill -> pagemill.a -> pagemill.b -> torch")


@pytest.mark.parametrize(
    "text",
    ["def f():\n    import torch", "if TYPE_CHECKING:\n    import torch", "import tokenizers"],
)
def test_lazy_import_is_not_heavy(text: str):
    assert python_layers.heavy_imports(_toy_tree(text), "pagemill") == []
