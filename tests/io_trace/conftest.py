"""moto's S3 server on loopback: a log of requests, each of which takes a while."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow.fs as pafs
import pytest
from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import WSGIRequestHandler, make_server


_NAPS = 20


@dataclass(frozen=True)
class Request:
    """``range`` is the header; ``start`` and ``stop`` are seconds, ``sent`` and ``received`` bytes
    of bodies, as the client sees them.
    """

    method: str
    path: str
    range: str
    start: float
    stop: float
    sent: int = 0
    received: int = 0
    condition: str = ""


@dataclass
class Server:
    """``requests`` since ``clear``; none is answered before ``latency`` seconds have passed since
    the latest began: on a slow machine too, requests that do not wait for each other overlap. The
    seconds pass in short naps, each of which takes longer where threads have to wait for a core.
    """

    filesystem: pafs.S3FileSystem | None = None
    latency: float = 0.0
    latest: float = 0.0
    requests: list[Request] = field(default_factory=list)

    def clear(self) -> None:
        self.requests.clear()

    def count(self, method: str) -> int:
        return sum(request.method == method for request in self.requests)

    @property
    def round_trips(self) -> int:
        """The longest chain of requests each of which began after the one before was answered."""
        trips, end = 0, float("-inf")
        for request in sorted(self.requests, key=lambda request: request.stop):
            if request.start >= end:
                trips, end = trips + 1, request.stop
        return trips


class _Quiet(WSGIRequestHandler):
    protocol_version = "HTTP/1.1"  # as real servers: one connection serves many requests

    def log(self, *_: Any) -> None:
        pass


def _slow(app: Callable[..., Any], server: Server) -> Callable[..., Any]:
    def handle(env: dict[str, Any], start_response: Callable[..., Any]) -> Any:
        start = server.latest = time.perf_counter()
        latest, naps = start, 0
        while server.latency and naps < _NAPS:
            time.sleep(server.latency / _NAPS)
            naps = naps + 1 if server.latest == latest else 0
            latest = server.latest
        answer = list(app(env, start_response))
        what = env["REQUEST_METHOD"], env["PATH_INFO"], env.get("HTTP_RANGE", "")
        bodies = int(env.get("CONTENT_LENGTH") or 0), sum(map(len, answer))
        tag = env.get("HTTP_IF_MATCH") or env.get("HTTP_X_AMZ_COPY_SOURCE_IF_MATCH", "")
        server.requests.append(Request(*what, start, time.perf_counter(), *bodies, tag))
        return answer

    return handle


@pytest.fixture(scope="session")
def s3() -> Iterator[Server]:
    """A server with an empty bucket ``lake``."""
    state = Server()
    app = _slow(DomainDispatcherApplication(create_backend_app), state)
    server = make_server("127.0.0.1", 0, app, threaded=True, request_handler=_Quiet)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        state.filesystem = pafs.S3FileSystem(
            access_key="a",
            secret_key="b",
            region="us-east-1",
            endpoint_override=f"127.0.0.1:{server.port}",
            scheme="http",
            allow_bucket_creation=True,
        )
        state.filesystem.create_dir("lake")
        yield state
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
