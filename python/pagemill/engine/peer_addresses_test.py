"""Names of hosts become IP addresses."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from pagemill.config import ConfigError
from pagemill.engine.peer_addresses import all_resolved, resolved

FLAG = "--kv-transfer-peers"
KNOWN = {"prefill": ["10.0.0.7", "fd00::7", "10.0.0.7"], "one": ["10.0.0.8"]}


@pytest.fixture(autouse=True)
def names(monkeypatch: pytest.MonkeyPatch) -> None:
    def getaddrinfo(host: str, port: object, **options: Any) -> list[Any]:
        if host not in KNOWN:
            raise socket.gaierror("unknown")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (ip, 0)) for ip in KNOWN[host]]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)


def test_names_have_all_of_their_addresses() -> None:
    assert resolved(FLAG, "one:7000") == ["10.0.0.8:7000"]
    both = ["10.0.0.7:7000", "[fd00::7]:7000"]
    assert all_resolved(FLAG, ["prefill:7000", "10.0.0.7:7000", "one:7001"]) == [
        *both,
        "10.0.0.8:7001",
    ]


@pytest.mark.parametrize(
    "address", ["10.0.0.7:7000", "[fd00::7]:7000", "[fd00::7%eth0]:7000", "fd00::7", "", "x", "x:y"]
)
def test_others_stay_as_they_are(address: str) -> None:
    assert resolved(FLAG, address) == [address]


def test_names_that_are_not_known() -> None:
    for name in ("decode", "a" * 70, "a..b"):
        with pytest.raises(ConfigError, match=f"{FLAG} {name}:7000: this machine knows no host"):
            resolved(FLAG, f"{name}:7000")
