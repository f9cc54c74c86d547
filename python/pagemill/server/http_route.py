"""An endpoint over HTTP: fields come from the body or the path, every outcome is a response."""

from __future__ import annotations

import logging
from dataclasses import replace

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Match, Route
from starlette.types import Scope

from pagemill.server.admission import read_body
from pagemill.server.caller import Caller
from pagemill.server.disconnect import until_disconnect
from pagemill.server.dispatch import invoke
from pagemill.server.endpoints.table import Endpoint, Transport
from pagemill.server.errors import ApiError
from pagemill.server.http_answer import answer_response, error_response
from pagemill.server.protocol.decode import decode_object
from pagemill.server.protocol.request_id import NAME, named
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
        if not self._server.has_task(self.row.task):
            return Match.NONE, {}
        return super().matches(scope)

    async def _respond(self, request: Request) -> Response:
        record: RequestRecord = request.state.record
        record.route = self.row.path
        caller: Caller = replace(request.state.caller, record=record)
        try:
            response = await self._answer(request, caller)
        except ApiError as error:
            if error.status == 429 and error.is_by_engine:
                error.retry_after_s = self._server.returns.refused(error.retry_after_s)
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
        return response

    async def _answer(self, request: Request, caller: Caller) -> Response:
        server, endpoint = self._server, self.row
        if server.config.trust_tenant_header:
            caller = _with_tenant(caller, request)
            request.state.record.tenant = caller.tenant
        if endpoint.transport is Transport.PATH:
            fields = {**request.query_params, **request.path_params}
            return answer_response(await invoke(server, endpoint, fields, caller), endpoint.errors)
        body = await read_body(request, server.config.max_body_bytes)
        fields, request_id = named(decode_object(body), request.state.request_id)
        request.state.request_id = request_id
        work = invoke(server, endpoint, fields, caller)
        return answer_response(await until_disconnect(work, request.receive), endpoint.errors)


def _of(caller: Caller) -> str:
    return f" (key {caller.key_id})" if caller.key_id else ""


def _with_tenant(caller: Caller, request: Request) -> Caller:
    """`caller` with the tenant that the header X-Tenant-Id names, if it names one.

    Raises:
        ApiError: 400 for a header that is not 1 to 128 printable ASCII characters without spaces.
    """
    tenant = request.headers.get("x-tenant-id", "")
    if not tenant:
        return caller
    if not NAME.fullmatch(tenant.encode()):
        raise ApiError(
            400, "X-Tenant-Id must have 1 to 128 printable ASCII characters without spaces."
        )
    return replace(caller, tenant=tenant)
