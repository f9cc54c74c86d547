"""An endpoint over HTTP: fields come from the body or the path, every outcome is a response."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import cast

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Match, Route
from starlette.types import Scope

from pagemill.server.access.caller import Caller
from pagemill.server.admission import read_body
from pagemill.server.answer import Talk
from pagemill.server.batches.upload import Upload
from pagemill.server.disconnect import until_disconnect
from pagemill.server.dispatch import invoke
from pagemill.server.endpoints.endpoint import Endpoint, Transport
from pagemill.server.errors import ApiError
from pagemill.server.form import FileLimit, declared_bytes, read_form
from pagemill.server.http_answer import answer_response, error_response
from pagemill.server.load_report import REQUEST_HEADER, RESPONSE_HEADER, load_report
from pagemill.server.protocol.decode import decode_object
from pagemill.server.protocol.request_id import named
from pagemill.server.realtime.websocket import converse
from pagemill.server.records.record import RequestRecord
from pagemill.server.records.timings import server_timing
from pagemill.server.state import ServerState

_LOGGER = logging.getLogger("pagemill.server")
_CLIENT_GONE = 499


class HttpRoute(Route):
    """The route of an endpoint, which exists if the loaded model has the endpoint's task."""

    def __init__(self, server: ServerState, endpoint: Endpoint) -> None:
        self._server = server
        self.row = endpoint
        endpoint.load()  # what a handler imports is imported before the first request
        methods = ["GET", "HEAD"] if endpoint.method == "GET" else [endpoint.method]
        super().__init__(endpoint.path, self._respond, methods=methods, name=endpoint.name)

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Starlette's, but no match for another task."""
        if not self._server.has_task(self.row.tasks):
            return Match.NONE, {}
        return super().matches(scope)

    async def _respond(self, request: Request) -> Response:
        record: RequestRecord = request.state.record
        record.route = self.row.path
        caller: Caller = replace(request.state.caller, record=record)
        try:
            response = await self._answer(request, caller)
        except ApiError as error:
            self._server.returns.schedule(error)
            response = error_response(error, self.row.errors)
        except ClientDisconnect:
            response = Response(status_code=_CLIENT_GONE)  # no client reads it
        except Exception:
            _LOGGER.exception("%s %s failed%s", self.row.method, self.row.path, _of(caller))
            failure = ApiError(500, "The server failed in an unexpected way; its log says more.")
            response = error_response(failure, self.row.errors)
        if response.status_code == 403:
            _LOGGER.warning("%s %s refused%s", self.row.method, self.row.path, _of(caller))
        if self._server.config.enable_per_request_metrics and record.work.timings is not None:
            response.headers["server-timing"] = server_timing(record.work.timings)
        if self.row.tasks:
            self._report_load(request, response)
        return response

    def _report_load(self, request: Request, response: Response) -> None:
        """Adds the engine's load, if the request asks for it."""
        format_, stats = request.headers.get(REQUEST_HEADER), self._server.stats
        report = None if format_ is None or stats is None else load_report(format_, stats)
        if report is not None:
            response.headers[RESPONSE_HEADER] = report

    async def _answer(self, request: Request, caller: Caller) -> Response:
        server, endpoint = self._server, self.row
        if server.config.trust_tenant_header:
            caller = caller.of_tenant(request.headers.get("x-tenant-id", ""))
            request.state.record.tenant = caller.tenant
        engine = request.headers.get("x-data-parallel-rank", "")
        caller = caller.on_engine(engine, server.config.data_parallel.data_parallel_size)
        if endpoint.transport in (Transport.PATH, Transport.WEBSOCKET):
            fields = {**request.query_params, **request.path_params}
            answer = await invoke(server, endpoint, fields, caller)
            if endpoint.transport is Transport.WEBSOCKET:
                return await converse(cast(Talk, answer), request)
            return answer_response(answer, endpoint.errors)
        if endpoint.transport is Transport.FORM:
            return await self._answer_form(request, caller)
        if endpoint.transport is Transport.AUDIO_FORM:
            return await self._answer_audio(request, caller)
        body = await read_body(request, server.config.max_body_bytes)
        sent = {**decode_object(body), **request.path_params}
        fields, request_id = named(sent, request.state.request_id)
        request.state.request_id = request_id
        request.state.record.request_id = request_id
        work = invoke(server, endpoint, fields, caller)
        return answer_response(await until_disconnect(work, request.receive), endpoint.errors)

    @property
    def _body_timeout(self) -> float:
        return self._server.config.connections.body_timeout

    async def _answer_form(self, request: Request, caller: Caller) -> Response:
        caller.require(self.row.scope)  # before anything is stored
        store = self._server.batch_store
        upload = Upload(store.files, caller.key_id)
        try:
            limit = FileLimit(store.config.batch_file_bytes, "--batch-file-bytes")
            fields = await read_form(request, limit, upload, self._body_timeout)
            return answer_response(await invoke(self._server, self.row, fields, caller))
        finally:
            await upload.discard()

    async def _answer_audio(self, request: Request, caller: Caller) -> Response:
        caller.require(self.row.scope)  # before anything is read
        speech = self._server.models.speech
        limit = FileLimit(speech.max_bytes, "--max-audio-bytes")
        expected = min(declared_bytes(request), limit.max_bytes)
        async with speech.uploads.upload(expected, caller.tenant) as upload:
            fields = await read_form(request, limit, upload, self._body_timeout)
            work = invoke(self._server, self.row, fields, caller)
            answer = await until_disconnect(work, request.receive)
        return answer_response(answer, self.row.errors)


def _of(caller: Caller) -> str:
    return f" (key {caller.key_id})" if caller.key_id else ""
