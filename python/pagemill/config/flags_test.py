"""Tests of pagemill.config.flags and pagemill.config.yaml_file."""

import re
from pathlib import Path

import pytest

from pagemill.config import ConfigError, SamplingConfig, ServeConfig, leaves
from pagemill.config.flags import FlagParser


def _parser() -> FlagParser:
    parser = FlagParser("pagemill serve", "Serves a model.")
    parser.add_config(ServeConfig)
    return parser


def _read(*argv: str) -> ServeConfig:
    parser = _parser()
    return parser.read(ServeConfig, parser.parse_args(argv))


def test_nothing_given_is_the_defaults() -> None:
    assert _read() == ServeConfig()


@pytest.mark.parametrize(
    "argv",
    [
        ("m.gguf", "--max-model-len", "4K", "--port=1"),
        ("--max_model_len=4096", "m.gguf", "--port", "1"),
        ("--port", "1", "--max_model_len", "4.096k", "m.gguf"),
        ("--port", "1", "--max_model-len", "4.096k", "--model", "m.gguf"),
    ],
)
def test_spellings_and_orders(argv: tuple[str, ...]) -> None:
    config = _read(*argv)
    assert config.engine.model.model == "m.gguf"
    assert config.engine.model.max_model_len == 4096
    assert config.server.port == 1


def test_underscores_of_values_are_kept() -> None:
    assert _read("--served-model-name=my_model").engine.model.served_model_name == ("my_model",)
    assert _read("my_model").engine.model.model == "my_model"


def test_switches_and_repeats() -> None:
    config = _read("--no_enable_prefix_caching", "--api-key", "a", "--api_key=b", "--access-log")
    assert not config.engine.cache.enable_prefix_caching
    assert config.server.api_key == ("a", "b")
    assert config.observe.access_log


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (("--prot", "1"), "unknown option '--prot'; did you mean '--port'"),
        (("--max-num", "1"), "unknown option '--max-num'"),  # no abbreviations
        (("m.gguf", "second"), "unknown argument 'second'\n"),
        (("m", "--served-model-name", "a", "b"), "'b'; give --served-model-name again for each"),
        (("m", "--access-log", "on"), "'on'; --access-log takes no value, and --no-access-log"),
        (("--port",), "expected one argument"),
    ],
)
def test_unknown_flags_end_with_status_2(
    argv: tuple[str, ...], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        _read(*argv)
    assert caught.value.code == 2
    assert words in capsys.readouterr().err


def test_file_and_flags(tmp_path: Path) -> None:
    path = tmp_path / "serve.yaml"
    path.write_text("model: m\nmax-model-len: 4k\nport: 9\nmax_num_seqs: 7\napi-key: [a, b]\n")
    config = _read("--config", str(path), "--port", "10")
    assert config.engine.model.model == "m"
    assert config.engine.model.max_model_len == 4000
    assert config.engine.scheduler.max_num_seqs == 7
    assert config.server.api_key == ("a", "b")
    assert config.server.port == 10


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("max-modle-len: 1", "unknown option 'max-modle-len'; did you mean 'max-model-len'"),
        ("- port", "name: value"),
        ("port: [", "is not YAML"),
        ("port: {a: 1}", "--port"),
        ("1: 2", "name: value"),
        ("port: 1\nport: 2", "'port' is given twice"),
        ("max-num-seqs: 1\nmax_num_seqs: 2", "given twice"),
        ("port: !!python/object/apply:os.getcwd []", "is not YAML"),
        ("port: 99999999", "out of range"),
    ],
)
def test_bad_files(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=words):
        _read("--config", str(path))


def test_missing_and_empty_files(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        _read("--config", str(tmp_path / "none.yaml"))
    (tmp_path / "empty.yaml").write_text("# nothing\n")
    assert _read("--config", str(tmp_path / "empty.yaml")) == ServeConfig()


def test_two_trees_share_a_file(tmp_path: Path) -> None:
    parser = FlagParser("pagemill generate", "Generates.")
    parser.add_config(ServeConfig)
    parser.add_config(SamplingConfig)
    path = tmp_path / "both.yaml"
    path.write_text("port: 3\ntop_k: 5\n")
    args = parser.parse_args(["--config", str(path), "--seed", "1"])
    assert parser.read(ServeConfig, args, known=(SamplingConfig,)).server.port == 3
    sampling = parser.read(SamplingConfig, args, known=(ServeConfig,))
    assert (sampling.top_k, sampling.seed) == (5, 1)
    with pytest.raises(ConfigError, match="unknown option 'port'"):
        parser.read(SamplingConfig, args)


def test_help_names_every_option_once(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        _read("--help")
    assert caught.value.code == 0
    text = capsys.readouterr().out
    assert text.startswith("usage: pagemill serve [MODEL] [options]\n")
    for leaf in leaves(ServeConfig):
        if leaf.spec.kind != "positional":
            assert len(re.findall(rf"\n  {leaf.flag}[ ,\n]", text)) == 1, leaf.flag
    assert max(len(line) for line in text.splitlines()) <= 100
