"""Tests of pagemill.config.json_parts, and of its flags in a parser."""

from pathlib import Path
from typing import Any

import pytest

from pagemill.config import ConfigError, EngineConfig, SamplingConfig
from pagemill.config.flags import FlagParser
from pagemill.config.json_parts import parse_part, split_flag, with_parts


def _read(*argv: str) -> EngineConfig:
    parser = FlagParser("pagemill generate", "Generates.")
    parser.add_config(EngineConfig)
    parser.add_config(SamplingConfig)
    return parser.read(EngineConfig, parser.parse_args(argv), known=(SamplingConfig,))


def _overrides(*argv: str) -> dict[str, Any]:
    return _read(*argv).model.hf_overrides


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *(("4", 4), ("-1", -1), ("0.5", 0.5), ("true", True), ("null", None), ("[1, 2]", [1, 2])),
        *(("ngram", "ngram"), ('"4"', "4"), ("4k", "4k"), ("", ""), ("a=b", "a=b"), ("{", "{")),
        ('{"c": {"d": 1}}', {"c": {"d": 1}}),
    ],
)
def test_values(text: str, value: object) -> None:
    assert _overrides("--hf-overrides.a", text) == {"a": value}
    assert _overrides(f"--hf_overrides.a={text}") == {"a": value}


def test_parts_of_several_options() -> None:
    config = _read(
        *("--speculative-config.method", "ngram", "m.gguf"),
        *("--tenant_weights.gold-1=4", "--speculative_config.num_speculative_tokens", "4"),
        *("--hf-overrides.rope_parameters.rope_type", "linear"),
        *("--hf-overrides.rope_parameters.factor", "2", "--hf-overrides.eos-ids+", "7"),
        *("--scheduling-policy", "fair", "--hf-overrides.layers", "2"),
    )
    assert config.model.model == "m.gguf"
    assert config.speculation.speculative_config == {
        "method": "ngram",
        "num_speculative_tokens": 4,
    }
    assert config.scheduler.tenant_weights == {"gold-1": 4}
    assert config.model.hf_overrides == {
        "rope_parameters": {"rope_type": "linear", "factor": 2},
        "eos-ids": [7],
        "layers": 2,
    }


def test_items_are_appended() -> None:
    for text, items in (
        ("7", [7]),
        ("7,x", [7, "x"]),
        ('"x,y"', ["x,y"]),
        ("[1, 2]", [[1, 2]]),
        ('{"a": 1, "b": 2}', [{"a": 1, "b": 2}]),
    ):
        given = _overrides("--hf-overrides.a+", text, "--hf-overrides.a+=last")
        assert given == {"a": [*items, "last"]}


def test_parts_complete_and_override_the_whole(tmp_path: Path) -> None:
    whole = '{"a": {"b": 1, "c": 2}, "d": 3, "e": [1]}'
    parts = ("--hf-overrides.a.b", "5", "--hf-overrides.d=[]", "--hf-overrides.e+", "2")
    merged = {"a": {"b": 5, "c": 2}, "d": [], "e": [1, 2]}
    # Whichever comes first.
    assert _overrides("--hf-overrides", whole, *parts) == merged
    assert _overrides(*parts, "--hf-overrides", whole) == merged
    path = tmp_path / "serve.yaml"
    path.write_text("hf-overrides: {a: {b: 1, c: 2}, d: 3, e: [1]}\ntop-k: 3\n")
    assert _overrides("--config", str(path), *parts) == merged
    assert _overrides("--config", str(path), "--hf-overrides", "{}", "--hf-overrides.d=1") == {
        "d": 1
    }


def test_the_last_of_equal_parts_counts() -> None:
    assert _overrides("--hf-overrides.a", "1", "--hf_overrides.a=2") == {"a": 2}
    # Names of parts are kept as they are.
    assert _overrides("--hf-overrides.a-b", "1", "--hf-overrides.a_b=2") == {"a-b": 1, "a_b": 2}


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (("--port.x", "1"), "unknown option '--port.x'"),  # not of this command
        (("--hf-override.x", "1"), "unknown option '--hf-override.x'; did you mean '--hf-ov"),
        (("--max_model_len.x", "1"), "--max_model_len.x: the value of --max-model-len is not JSON"),
        (("--hf-overrides.", "1"), "--hf-overrides.: the name of a part is empty"),
        (("--hf-overrides.a..b=1",), "--hf-overrides.a..b: the name of a part is empty"),
        (("--hf-overrides.+", "1"), "--hf-overrides.+: the name of a part is empty"),
        (("--hf-overrides.a",), "argument --hf-overrides.a: expected one argument"),
        (("--hf-overrides.a", "--seed", "1"), "argument --hf-overrides.a: expected one argument"),
    ],
)
def test_flags_that_name_no_part(
    argv: tuple[str, ...], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        _read(*argv)
    assert caught.value.code == 2
    assert words in capsys.readouterr().err


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (("--hf-overrides.a=1", "--hf-overrides.a.b=2"), r"\.a\.b: cannot be combined with --hf-"),
        (("--hf-overrides.a.b=2", "--hf-overrides.a={}"), r"\.a: cannot be combined with --hf-"),
        (("--hf-overrides.a+=1", "--hf-overrides.a=[]"), r"\.a: cannot be combined with .*\.a\+"),
        (('--hf-overrides={"a": 1}', "--hf-overrides.a.b=2"), "a.b: a of --hf-overrides is not"),
        (('--hf-overrides={"a": 1}', "--hf-overrides.a+=2"), "overrides is not a list"),
        (("--hf-overrides=[]", "--hf-overrides.a=2"), "not a JSON object"),
        (("--speculative-config.methd=ngram",), "--speculative-config: method is None"),
        (("--tenant-weights.gold=much",), "--tenant-weights"),
    ],
)
def test_parts_that_do_not_fit(argv: tuple[str, ...], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        _read(*argv)


def test_texts_that_look_like_parts() -> None:
    for text in ("hf-overrides.a", "-hf.a", "--model", "--model=a.b", "--see a.b", "-1.5", ".a"):
        assert split_flag(text) is None


def test_the_whole_is_not_changed() -> None:
    flag = split_flag("--option.a.b")
    assert flag is not None
    whole: dict[str, Any] = {"a": {"b": 1}}
    assert with_parts(whole, [parse_part(flag, "2")]) == {"a": {"b": 2}}
    assert whole == {"a": {"b": 1}}


def test_help_says_it(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        _read("--help")
    text = " ".join(capsys.readouterr().out.split())
    assert "One part: --hf-overrides.NAME VALUE" in text
    assert "--max-model-len.NAME" not in text
