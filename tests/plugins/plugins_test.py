"""A package with further rows for tables, laid out as pip installs it: a model, formats of outputs
and a method of quantization are found by the names of its entry points."""

import json
import sys
from pathlib import Path

import pytest
from pagemill import LLM
from pagemill.cli.models import architectures
from pagemill.config import ConfigError
from pagemill.models.base import ModelConfigError
from pagemill.models.table import ARCHITECTURES, architecture_of, find
from pagemill.quantization.section import QuantizationError
from pagemill.quantization.table import method_of
from pagemill.render.errors import RenderError
from pagemill.render.formats.table import choose_formats, load_format

from tests.parity.llama_checkpoint import write_llama
from tests.plugins.installed_package import install

ENTRIES = """\
[pagemill.models]
AlpacaForCausalLM = alpaca:ROW
BrokenForCausalLM = alpaca_is_gone:ROW
LlamaForCausalLM = alpaca_is_gone:ROW
WrongForCausalLM = alpaca:FORMAT

[pagemill.quantization]
alpaca = alpaca:AlpacaMethod

[pagemill.tool_formats]
alpaca = alpaca:FORMAT
wrong = alpaca:ROW
"""
TABLES = """\
from dataclasses import replace

from pagemill.models.architecture import Architecture
from pagemill.quantization.unquantized import Unquantized
from pagemill.render.formats.json_formats import HERMES

ROW = Architecture("alpaca_model:AlpacaModel", "Alpaca", ("alpaca",), package="alpaca_models")
FORMAT = replace(HERMES, marks=("<alpaca>",))


class AlpacaMethod(Unquantized):
    pass
"""
MODEL = """\
from pagemill.models.llama import LlamaModel


class AlpacaModel(LlamaModel):
    pass
"""


@pytest.fixture(autouse=True)
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = tmp_path / "site"
    install(site, ENTRIES, {"alpaca.py": TABLES, "alpaca_models/alpaca_model.py": MODEL})
    for name in ("alpaca", "alpaca_models", "alpaca_models.alpaca_model"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.syspath_prepend(site)


def test_its_model_runs(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    write_llama(folder)
    outputs = []
    for change in ({}, {"architectures": ["AlpacaForCausalLM"], "model_type": "alpaca"}):
        config = json.loads((folder / "config.json").read_text()) | change
        (folder / "config.json").write_text(json.dumps(config))
        with LLM(str(folder), skip_tokenizer_init=True, max_model_len=64, pack_cache=False) as llm:
            outputs.append(llm.generate([1, 2, 3], max_tokens=8, ignore_eos=True, temperature=0.0))
    ours, theirs = ([choice.token_ids for choice in found[0].choices] for found in outputs)
    assert ours == theirs and len(ours[0]) == 8


def test_its_row_is_found_like_others(caplog: pytest.LogCaptureFixture) -> None:
    row = find("AlpacaForCausalLM").row
    assert find("AlpacaForSequenceClassification").row == row
    assert architecture_of("alpaca") == "AlpacaForCausalLM"
    assert "BrokenForCausalLM" in caplog.text and "WrongForCausalLM" in caplog.text
    assert find("LlamaForCausalLM").row == ARCHITECTURES["LlamaForCausalLM"]
    assert architectures(installed=True)[len(architectures())]["title"] == "Alpaca"
    with pytest.raises(ModelConfigError, match=r"unknown architecture 'GoneForCausalLM'"):
        find("GoneForCausalLM")
    with pytest.raises(ModelConfigError, match=r"WrongForCausalLM \(pagemill.models\) is a Tool"):
        find("WrongForCausalLM")
    with pytest.raises(ConfigError, match=r"BrokenForCausalLM .*No module named 'alpaca_is_gone'"):
        find("BrokenForCausalLM")


def test_its_formats_are_found() -> None:
    hermes = load_format("json_formats:HERMES")
    found = choose_formats(None, "alpaca", "").tools
    assert found is not None and found != hermes and found.marks == ("<alpaca>",)
    with pytest.raises(RenderError, match=r"unknown format 'llama'; .*xlam, alpaca, wrong, none"):
        choose_formats(None, "llama", "")
    with pytest.raises(RenderError, match=r"wrong \(pagemill.tool_formats\) is a Architecture"):
        choose_formats(None, "wrong", "")
    with pytest.raises(RenderError, match="--reasoning-parser: unknown format 'alpaca'"):
        choose_formats("alpaca", None, "")


def test_its_method_is_found() -> None:
    found = method_of({"quantization_config": {"quant_method": "alpaca"}})
    assert type(found).__name__ == "AlpacaMethod"
    with pytest.raises(QuantizationError, match="'llama' is not supported"):
        method_of({"quantization_config": {"quant_method": "llama"}})
