"""`pagemill route` before two real servers: prefixes are found; a killed server comes back."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.e2e.server_process import NAME, SMOLLM2, SMOLLM2_REASON, ServerProcess, route, serve

pytestmark = pytest.mark.skipif(not SMOLLM2, reason=SMOLLM2_REASON)

BLOCK = 16
KEYS = "web: {key: web-key}\nrouter: {key: router-key, scopes: [admin]}\n"
WEB = {"authorization": "Bearer web-key"}
OPTIONS = ("--max-model-len", "2048", "--max-num-seqs", "8", "--max-kv-events", "1000")
TOPICS = ("rivers and the towns", "engines and the oils", "poems and the old tales")


@dataclass
class Fleet:
    """Two servers and a router before them."""

    servers: list[ServerProcess]
    router: ServerProcess
    folder: Path
    stack: contextlib.ExitStack

    def served(self) -> list[float]:
        """Responses of each server."""
        return [
            self.router.metric("router_requests_total", server=each.base_url, outcome="served")
            for each in self.servers
        ]


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    folder = tmp_path_factory.mktemp("fleet")
    (folder / "keys.yaml").write_text(KEYS)
    (folder / "keys.yaml").chmod(0o600)
    (folder / "router.key").write_text("router-key\n")
    with contextlib.ExitStack() as stack:
        servers = [start_server(stack, folder, index) for index in range(2)]
        router = stack.enter_context(routing(servers, folder, "prefix_aware"))
        fleet = Fleet(servers, router, folder, stack)
        until(lambda: available(fleet) == [1, 1])
        yield fleet


def start_server(
    stack: contextlib.ExitStack, folder: Path, index: int, port: int = 0
) -> ServerProcess:
    own = folder / f"server-{index}"
    own.mkdir(exist_ok=True)
    options = (*OPTIONS, "--api-key-file", str(folder / "keys.yaml"))
    return stack.enter_context(serve(SMOLLM2, own, options, port=port))


def routing(
    servers: Sequence[ServerProcess], folder: Path, policy: str
) -> contextlib.AbstractContextManager[ServerProcess]:
    own = folder / policy
    own.mkdir()
    options = ("--policy", policy, "--model", SMOLLM2, "--probe-interval", "0.1")
    options += ("--server-key-file", str(folder / "router.key"))
    return route([server.base_url for server in servers], own, options)


def available(fleet: Fleet) -> list[float]:
    return [
        fleet.router.metric("router_server_available", server=server.base_url)
        for server in fleet.servers
    ]


def until(condition: Callable[[], bool], timeout_s: float = 120) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def chat(base_url: str, messages: list[dict[str, str]]) -> tuple[str, int, int]:
    """Answer, prompt tokens, and those of them that were cached."""
    body = {"model": NAME, "messages": messages, "max_tokens": 6, "temperature": 0}
    url = f"{base_url}/v1/chat/completions"
    got = httpx.post(url, json=body, headers=WEB, timeout=60)
    assert got.status_code == 200, got.text
    usage = got.json()["usage"]
    cached = (usage["prompt_tokens_details"] or {}).get("cached_tokens", 0)
    return got.json()["choices"][0]["message"]["content"], usage["prompt_tokens"], cached


@dataclass
class Conversation:
    """Turns of a chat; each knows how much of it could have been cached."""

    topic: str
    messages: list[dict[str, str]] = field(default_factory=list)
    prompt_tokens: int = 0

    def turn(self, base_url: str) -> tuple[int, int]:
        """Tokens that were cached, and those that the turn before left in some cache."""
        if not self.messages:  # one that no other conversation begins with
            self.messages.append({"role": "system", "content": f"{self.topic} are all you know."})
        text = " ".join(f"{self.topic} {i}," for i in range(6))
        self.messages.append({"role": "user", "content": text})
        reusable = self.prompt_tokens // BLOCK * BLOCK
        answer, self.prompt_tokens, cached = chat(base_url, self.messages)
        self.messages.append({"role": "assistant", "content": answer})
        return cached, reusable


def later_turns(base_url: str, prefix: str) -> tuple[int, int]:
    """Cached and reusable tokens of all turns but the first of three conversations."""
    conversations = [Conversation(f"{prefix} {topic}") for topic in TOPICS]
    cached = reusable = 0
    for turn in range(3):
        for conversation in conversations:
            found, left = conversation.turn(base_url)
            if turn:
                cached, reusable = cached + found, reusable + left
    return cached, reusable


def test_conversations_return_to_their_server(fleet: Fleet) -> None:
    cached, reusable = later_turns(fleet.router.base_url, "Blue")
    assert cached >= reusable - BLOCK * 6, "a block a turn may be counted differently"
    assert all(fleet.served())
    with routing(fleet.servers, fleet.folder, "round_robin") as router:
        until(lambda: available(replace(fleet, router=router)) == [1, 1])
        in_turn, _ = later_turns(router.base_url, "Green")
    assert in_turn < 0.8 * cached


def test_what_a_server_got_from_elsewhere_is_known(fleet: Fleet) -> None:
    metric = fleet.router.metric
    for server in fleet.servers:
        conversation = Conversation(f"{server.base_url[-5:]} red cats and dogs")
        conversation.turn(server.base_url)  # past the router, which learns of it by events
        body = {"max_events": 10_000}
        key = {"authorization": "Bearer router-key"}
        got = httpx.post(f"{server.base_url}/kv_events", json=body, headers=key, timeout=60)
        known = got.json()["next"] - 1
        url = server.base_url
        until(lambda url=url, n=known: metric("router_kv_events_total", server=url) >= n)
        cached, reusable = conversation.turn(fleet.router.base_url)
        assert cached >= reusable - BLOCK > 0
        key = {"authorization": "Bearer web-key"}
        got = httpx.post(f"{server.base_url}/kv_events", json={}, headers=key, timeout=60)
        assert got.status_code == 403


class Stream:
    """A streamed completion, read by a thread of its own."""

    def __init__(self, base_url: str, prompt: str) -> None:
        self.events: list[str] = []
        self.first = threading.Event()
        self.ended = threading.Event()
        self._url = f"{base_url}/v1/completions"
        self._body: dict[str, Any] = {"prompt": prompt, "max_tokens": 200, "ignore_eos": True}
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        body = self._body | {"stream": True}
        with httpx.stream("POST", self._url, json=body, headers=WEB, timeout=60) as response:
            for line in response.iter_lines():
                if line.startswith("data: "):
                    self.events.append(line.removeprefix("data: "))
                    self.first.set()
        self.ended.set()

    @property
    def error(self) -> Any:
        """The error that ended it; None if it is complete."""
        assert self.events[-1] == "[DONE]"
        return json.loads(self.events[-2]).get("error")


def test_a_killed_server_costs_its_own_streams_only(fleet: Fleet) -> None:
    url = fleet.router.base_url
    victim = fleet.servers[0]
    running = [
        lambda s=server: fleet.router.metric("router_requests_running", server=s.base_url)
        for server in fleet.servers
    ]
    streams = [Stream(url, f"{i} {topic}") for i in range(2) for topic in TOPICS]
    for stream in streams:
        assert stream.first.wait(60)
    on_victim = running[0]()
    assert 0 < on_victim < len(streams)
    victim.process.kill()
    for stream in streams:
        assert stream.ended.wait(60)
    errors = [stream.error for stream in streams if stream.error]
    assert len(errors) == on_victim
    assert {error["code"] for error in errors} == {502}
    assert all(victim.base_url in error["message"] for error in errors)
    chat(url, [{"role": "user", "content": "Are you there?"}])
    assert available(fleet) == [0, 1]

    port = int(victim.base_url.rpartition(":")[2])
    fleet.servers[0] = start_server(fleet.stack, fleet.folder, 0, port)
    until(lambda: available(fleet) == [1, 1])
    before = fleet.served()
    for i in range(4):
        chat(url, [{"role": "system", "content": f"{i} is the first of words that are new here."}])
    assert all(after > b for after, b in zip(fleet.served(), before, strict=True))
    assert fleet.router.stop() == 0
