"""Follows what servers have in their prefix caches: long polls of `/kv_events`."""

from __future__ import annotations

import asyncio
import logging

import msgspec

from pagemill import _native
from pagemill.config import RouterConfig
from pagemill.router.fleet import Fleet, Server
from pagemill.router.upstream import UpstreamError
from pagemill.server.error_shapes import ErrorResponse
from pagemill.server.protocol.kv_event import KvEvents, KvEventsRequest

_LOGGER = logging.getLogger("pagemill.router")
_WAIT_S = 10.0  # of a poll, for the first event
_PAUSE_S = 0.2  # after a failure
_PAUSE_AFTER_REFUSAL_S = 30.0
_MAX_ANSWER_BYTES = 64 * 2**20


class KvEventReader:
    """Follows one server while it gets requests.

    It begins with all events that the server keeps. If some are lost later, what was known of the
    server is forgotten.
    """

    def __init__(self, fleet: Fleet, server: Server, config: RouterConfig, key: str) -> None:
        """`key` is the API key to send, "" for none."""
        self._fleet = fleet
        self._server = server
        self._block_size = config.block_size
        self._hash_bytes = {"xxh3-128": 16, "sha256": 32}[config.prefix_caching_hash_algo]
        self._headers = [(b"host", server.upstream.host), (b"content-type", b"application/json")]
        if key:
            self._headers.append((b"authorization", b"Bearer " + key.encode()))
        self._log_id = ""
        self._next = 1
        self._outages = server.outages
        self._complaint = ""

    async def run(self) -> None:
        """Never returns."""
        while True:
            if self._server not in self._fleet.available:
                await asyncio.sleep(_PAUSE_S)
                continue
            try:
                await asyncio.sleep(await self._poll())
            except (UpstreamError, msgspec.MsgspecError):
                await asyncio.sleep(_PAUSE_S)

    async def _poll(self) -> float:
        """Reads the next events. Returns how long to wait before the next poll."""
        if self._server.outages != self._outages:
            self._outages = self._server.outages
            self._start_over("")
        body = msgspec.json.encode(KvEventsRequest(sequence=self._next, timeout_s=_WAIT_S))
        size = (b"content-length", str(len(body)).encode())
        reply = await self._server.upstream.send("POST", "/kv_events", [*self._headers, size], body)
        answer = await reply.body(_MAX_ANSWER_BYTES)
        if reply.status == 400 and self._next > 1:  # a number that a new engine does not have yet
            self._start_over("")
            return _PAUSE_S
        if reply.status != 200:
            message = msgspec.json.decode(answer, type=ErrorResponse).error.message
            self._complain(f"does not show its KV events ({message})")
            return _PAUSE_AFTER_REFUSAL_S
        if self._server.outages == self._outages:
            self._apply(msgspec.json.decode(answer, type=KvEvents))
        return 0.0

    def _apply(self, batch: KvEvents) -> None:
        counts = self._server.counts
        if batch.log_id != self._log_id:
            is_new_engine = bool(self._log_id)
            self._start_over(batch.log_id)
            if is_new_engine:
                return  # these events do not begin with the first
        elif batch.dropped:
            counts.events_lost += batch.dropped
            self._fleet.router.forget(self._server.index)
        self._next = batch.next
        counts.events += len(batch.events)
        for event in batch.events:
            try:
                hashes = [bytes.fromhex(each) for each in event.hashes]
                self._check(event.block_size, hashes)
                self._fleet.router.observe(
                    self._server.index,
                    event.type,
                    hashes,
                    group=event.group,
                    medium=event.medium,
                    block_size=event.block_size,
                )
            except (ValueError, TypeError, _native.StatusError):
                self._complain("sends KV events that cannot be read: is it another version?")

    def _start_over(self, log_id: str) -> None:
        self._fleet.router.forget(self._server.index)
        self._log_id, self._next = log_id, 1

    def _check(self, block_size: int, hashes: list[bytes]) -> None:
        """Complains about blocks of which no prompt's hashes can be found."""
        if block_size not in (0, self._block_size):
            self._complain(
                f"has blocks of {block_size} tokens, so its KV events are of no use: start the"
                f" router with --block-size {block_size}"
            )
        elif hashes and len(hashes[0]) != self._hash_bytes:
            self._complain(
                "has another --prefix-caching-hash-algo than the router, so its KV events are of no"
                " use"
            )

    def _complain(self, complaint: str) -> None:
        if complaint != self._complaint:
            self._complaint = complaint
            _LOGGER.warning("%s %s", self._server.upstream.url, complaint)
