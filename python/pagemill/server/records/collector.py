"""A collector of traces for tests: OTLP over HTTP on the loopback."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

_PATIENCE_S = 60.0


class Collector(ThreadingHTTPServer):
    """Keeps the spans that it receives; with `hangs` it takes requests and never answers."""

    daemon_threads = True

    def __init__(self, hangs: bool = False) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.hangs = hangs
        self.spans: list[Any] = []
        self.resources: list[Mapping[str, Any]] = []
        self.bytes = b""
        """All that was received."""
        self.num_requests = 0
        self.let_go = threading.Event()
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def endpoint(self) -> str:
        """The URL for `--otlp-traces-endpoint`, without its path."""
        return f"http://127.0.0.1:{self.server_port}"

    def wait_for(self, num_spans: int, trace: str = "") -> list[Any]:
        """The spans, once there are so many; those of the trace with this id, if one is given."""
        deadline = time.monotonic() + _PATIENCE_S
        while True:
            found = [span for span in list(self.spans) if span.trace_id.hex().startswith(trace)]
            if len(found) >= num_spans or time.monotonic() > deadline:
                return found
            time.sleep(0.02)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.let_go.set()
        self.shutdown()
        super().__exit__(kind, error, trace)


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        server = self.server
        assert isinstance(server, Collector)
        server.num_requests += 1
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if server.hangs:
            server.let_go.wait(_PATIENCE_S)
            return
        assert self.path == "/v1/traces"
        server.bytes += body
        for group in ExportTraceServiceRequest.FromString(body).resource_spans:
            server.resources.append(values(group.resource.attributes))
            for scope in group.scope_spans:
                server.spans += scope.spans
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        pass


def values(attributes: Any) -> dict[str, Any]:
    """Attributes by name, lists as tuples."""
    return {each.key: _value(each.value) for each in attributes}


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return tuple(_value(each) for each in value.array_value.values)
    return getattr(value, kind)
