"""Keys from a file, and the warning about a server without keys."""

from __future__ import annotations

import json
import logging
from hashlib import sha256
from pathlib import Path

import msgspec
import pytest

from pagemill.config import ConfigError, ServerConfig
from pagemill.server.access.caller import GRANTS, Caller, Scope
from pagemill.server.access.keys import ApiKey, api_keys, plain_keys, warn_if_open
from pagemill.server.limits.limiter import KeyLimits


def test_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAGEMILL_API_KEY", "e1,e2")
    assert api_keys(ServerConfig()) == plain_keys(["e1", "e2"])
    assert api_keys(ServerConfig(api_key=("a",))) == plain_keys(["a"])
    path = tmp_path / "keys"
    path.write_text("# for the web site\nf1\n\n  f2 \n")
    path.chmod(0o600)
    assert api_keys(ServerConfig(api_key_file=str(path))) == plain_keys(["f1", "f2"])
    both = ServerConfig(api_key=("a",), api_key_file=str(path))
    assert api_keys(both) == plain_keys(["a", "f1", "f2"])


def test_named_keys(tmp_path: Path) -> None:
    path = tmp_path / "keys.yaml"
    digest = sha256(b"k2").hexdigest()
    path.write_text(
        "web: {key: k1, tenant: blue, scopes: [inference]}\n"
        f"batch:\n  sha256: {digest}\n"
        "operator: {key: k3, scopes: [inference, tools, metrics, admin]}\n"
    )
    path.chmod(0o600)
    assert api_keys(ServerConfig(api_key=("a",), api_key_file=str(path))) == (
        ApiKey.of("a", Caller("key-1")),
        ApiKey.of("k1", Caller("web", "blue", frozenset({Scope.INFERENCE}))),
        ApiKey.of("k2", Caller("batch", "batch")),
        ApiKey.of("k3", Caller("operator", "operator", frozenset(GRANTS))),
    )


@pytest.mark.parametrize(
    ("content", "part"),
    [
        *(("", "no key"), ("sk-hush", "form"), ("web: sk-hush", "fields are")),
        *(("web: {key: 12345}", "quote"), ("web: {kee: sk-hush}", "fields are")),
        *(("web: {}", "either"), (f"web: {{key: sk-hush, sha256: '{'0' * 64}'}}", "either")),
        *(("web: {sha256: abc}", "64 hex"), ('web: {key: "sk-hush "}', "padded")),
        *(("web: {key: sk-hush, scopes: [sk-hush]}", "inference, tools, metrics, admin"),),
        *(("a b: {key: sk-hush}", "a name is"), ("web: {key: sk-hush, tenant: a b}", "a tenant")),
        *(("a: {key: sk-hush}\nb: {key: sk-hush}", "same key"), ("a: {key: *sk-hush}", "line 1")),
    ],
)
def test_named_keys_that_cannot_be_used(tmp_path: Path, content: str, part: str) -> None:
    path = tmp_path / "keys.yaml"
    path.write_text(content)
    with pytest.raises(ConfigError, match=part) as error:
        api_keys(ServerConfig(api_key_file=str(path)))
    assert "sk-hush" not in str(error.value)


@pytest.mark.parametrize(
    ("content", "part"),
    [(b"", "no key"), (b"# none\n\n", "no key"), (b"a\nb\x07\n", "key 2"), (b"\xff\n", "ASCII")],
)
def test_files_that_hold_no_keys(tmp_path: Path, content: bytes, part: str) -> None:
    path = tmp_path / "keys"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=part):
        api_keys(ServerConfig(api_key_file=str(path)))
    with pytest.raises(ConfigError, match="No such file"):
        api_keys(ServerConfig(api_key_file=str(tmp_path / "absent")))


def test_a_file_that_others_can_read(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "keys"
    path.write_text("secret-key\n")
    for mode, warned in ((0o600, False), (0o640, True), (0o604, True)):
        caplog.clear()
        path.chmod(mode)
        assert api_keys(ServerConfig(api_key_file=str(path))) == plain_keys(["secret-key"])
        assert ("chmod 600" in caplog.text) == warned
        assert "secret-key" not in caplog.text


@pytest.mark.parametrize(
    ("host", "keys", "warned"),
    [
        ("0.0.0.0", (), True),
        ("::", (), True),
        ("0.0.0.0", ("k",), False),
        ("127.0.0.1", (), False),
        ("localhost", (), False),
    ],
)
def test_open_servers(
    caplog: pytest.LogCaptureFixture, host: str, keys: tuple[str, ...], warned: bool
) -> None:
    with caplog.at_level(logging.WARNING):
        warn_if_open(host, plain_keys(keys))
    assert ("without an API key" in caplog.text) == warned


def test_limits(tmp_path: Path) -> None:
    path = tmp_path / "keys.yaml"
    path.write_text(
        "web: {key: k1, concurrency: 4, requests_per_minute: 60, tokens_per_minute: 9000}\n"
        "batch: {key: k2, priority: 5, models: [small, small-adapter], concurrency: null}\n"
    )
    web, batch = (key.caller for key in api_keys(ServerConfig(api_key_file=str(path))))
    assert web == Caller("web", "web", limits=KeyLimits(4, 60, 9000))
    assert batch == Caller(
        "batch", "batch", models=frozenset({"small", "small-adapter"}), priority=5
    )
    for wrong in ("concurrency: 0", "tokens_per_minute: many", "models: small", "priority: 1.5"):
        path.write_text(f"web: {{key: k1, {wrong}}}")
        with pytest.raises(ConfigError, match="its fields are"):
            api_keys(ServerConfig(api_key_file=str(path)))


def test_a_priority_needs_the_policy(tmp_path: Path) -> None:
    path = tmp_path / "keys.yaml"
    config = ServerConfig(api_key_file=str(path))
    path.write_text("web: {key: k1, priority: 0}")
    api_keys(config, allows_priority=False)
    path.write_text("web: {key: k1}\nbatch: {key: k2, priority: 5}")
    with pytest.raises(ConfigError, match="needs --scheduling-policy priority"):
        api_keys(config, allows_priority=False)
    assert [key.caller.priority for key in api_keys(config)] == [None, 5]


def test_keys_reach_other_processes_as_digests() -> None:
    caller = Caller(
        "web",
        "blue",
        frozenset({Scope.METRICS}),
        KeyLimits(4, None, 9000),
        frozenset({"small"}),
        priority=-3,
    )
    keys = (ApiKey.of("secret-key", caller), ApiKey.of("other-key", Caller("batch")))
    message = json.dumps(msgspec.to_builtins(keys))
    assert "secret-key" not in message
    assert msgspec.convert(json.loads(message), tuple[ApiKey, ...]) == keys
