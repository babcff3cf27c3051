"""moto's S3 server on loopback, which logs requests, and answers once the client only waits."""

from __future__ import annotations

import contextlib
import random
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pyarrow.fs as pafs
from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import WSGIRequestHandler, make_server

Answer = TypeVar("Answer")


@dataclass(frozen=True)
class Request:
    """A logged request. ``range`` is the header; ``start`` and ``stop`` are seconds.

    ``sent`` and ``received`` are bytes of bodies, from the client's point of view.
    """

    method: str
    path: str
    range: str
    start: float
    stop: float
    sent: int = 0
    received: int = 0
    condition: str = ""
    """The entity tag in the request's condition."""


_SLOW_DOWN = b"<Error><Code>SlowDown</Code><Message>Reduce your request rate.</Message></Error>"
_NAP, _CALM = 0.01, 10
"""Seconds between checks, and how many checks in a row must find nothing left to do."""
_PATIENCE = 5
"""Maximum seconds to wait for requests in progress."""
_IDLE = 0.001
"""Maximum seconds of processor time of all other threads between two checks."""


@dataclass
class Server:
    """An S3 server in this process. ``requests`` are those since ``clear``.

    If it ``waits``, it answers no request before all threads of this process wait for answers. Then
    it answers all requests at once. So requests that do not depend on each other overlap, even on a
    slow machine.
    """

    filesystem: pafs.S3FileSystem | None = None
    waits: bool = False
    fault_rate: float = 0.0
    faults: int = 0
    dice: random.Random = field(default_factory=partial(random.Random, 1))
    began: int = 0
    ended: int = 0
    requests: list[Request] = field(default_factory=list)
    _answering: threading.Event = field(default_factory=threading.Event)
    _counting: threading.Lock = field(default_factory=threading.Lock)

    def wait(self) -> None:
        """Waits until it is time to answer."""
        with self._counting:
            self.began += 1
        if self.waits:
            self._answering.wait()

    def answer(self) -> None:
        """Answers requests when it is time, forever."""
        calm, before = 0, (self.began, 0.0)
        while True:
            time.sleep(_NAP)
            # A thread that waits for this one to release the GIL also looks as if it waits.
            worked = time.process_time() - time.thread_time()
            is_idle = self.began == before[0] and worked - before[1] < _IDLE
            calm = calm + 1 if is_idle and _all_wait() else 0
            before = self.began, worked
            if calm >= _CALM:
                due, self._answering, calm = self._answering, threading.Event(), 0
                due.set()

    def settle(self) -> None:
        """Waits until requests begun earlier are finished, for example a listing in advance."""
        calm, latest = 0, time.monotonic() + _PATIENCE
        while calm < _CALM and time.monotonic() < latest:
            time.sleep(_NAP)
            calm = calm + 1 if self.began == self.ended and _all_wait() else 0

    def fault(self) -> str:
        """Draws a fault of a request: it is refused, or its answer is lost. Mostly none."""
        with self._counting:
            if self.dice.random() >= self.fault_rate:
                return ""
            self.faults += 1
            return self.dice.choice(["refused", "cut"])

    def clear(self) -> None:
        self.requests.clear()

    def log(self, action: Callable[[], Answer]) -> Answer:
        """Runs ``action``, and keeps the log of its requests alone."""
        self.settle()
        self.clear()
        self.waits = True
        try:
            return action()
        finally:
            self.waits = False

    def count(self, method: str) -> int:
        return sum(request.method == method for request in self.requests)

    @property
    def round_trips(self) -> int:
        """The longest chain of requests, each of which began after the answer to the one before."""
        trips, end = 0, float("-inf")
        for request in sorted(self.requests, key=lambda request: request.stop):
            if request.start >= end:
                trips, end = trips + 1, request.stop
        return trips


class _Quiet(WSGIRequestHandler):
    protocol_version = "HTTP/1.1"  # like real servers, which serve many requests per connection

    def log(self, *_: Any) -> None:
        pass


def _slow(app: Callable[..., Any], server: Server) -> Callable[..., Any]:
    def handle(env: dict[str, Any], start_response: Callable[..., Any]) -> Any:
        start = time.perf_counter()
        server.wait()
        fault = server.fault()
        if fault == "refused":
            env["wsgi.input"].read(int(env.get("CONTENT_LENGTH") or 0))
            start_response("503 Slow Down", [("Content-Type", "application/xml")])
            return [_SLOW_DOWN]
        answer = list(app(env, start_response))
        if fault == "cut":
            env["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
            raise ConnectionResetError
        what = env["REQUEST_METHOD"], env["PATH_INFO"], env.get("HTTP_RANGE", "")
        bodies = int(env.get("CONTENT_LENGTH") or 0), sum(map(len, answer))
        tag = env.get("HTTP_IF_MATCH") or env.get("HTTP_X_AMZ_COPY_SOURCE_IF_MATCH", "")
        server.requests.append(Request(*what, start, time.perf_counter(), *bodies, tag))
        with server._counting:
            server.ended += 1
        return answer

    return handle


def _all_wait() -> bool:
    """True if no other thread of this process works or waits for a core."""
    if sys.platform != "linux":
        return True
    own = str(threading.get_native_id())
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):  # it has ended
            state = (task / "stat").read_text().rpartition(")")[2].split()[0]
            if task.name != own and state in "RD":
                return False
    return True


@contextlib.contextmanager
def serve() -> Iterator[Server]:
    """Starts a server with an empty bucket ``lake``, and stops it at the end."""
    state = Server()
    app = _slow(DomainDispatcherApplication(create_backend_app), state)
    server = make_server("127.0.0.1", 0, app, threaded=True, request_handler=_Quiet)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    threading.Thread(target=state.answer, daemon=True).start()
    try:
        state.filesystem = pafs.S3FileSystem(
            access_key="a",
            secret_key="b",
            region="us-east-1",
            endpoint_override=f"http://127.0.0.1:{server.port}",
            scheme="http",
            allow_bucket_creation=True,
            request_timeout=60,  # seconds; a busy machine takes long to answer
        )
        state.filesystem.create_dir("lake")
        yield state
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
