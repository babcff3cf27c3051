"""One retry policy for requests to remote storage that fail with a transient error.

A request is repeated if the store reports that it is busy (429, 500, 502, 503, 504, SlowDown and
similar codes). It is also repeated after a timeout or a lost connection. It is made up to ``TRIES``
times, within ``MAX_RETRY_SECONDS`` of the first try. Before the n-th repetition the caller sleeps a
random time of up to ``FIRST_PAUSE_SECONDS * 2 ** (n - 1)`` seconds, at most ``LONGEST_SECONDS``.
The randomness keeps clients that were rejected together from returning together.

All other errors fail at once: a missing file, an unreachable host, a refusal, wrong credentials,
errors of local disks.

Requests that change something are repeated if that does no harm: an upload whose bytes are still
available, a new folder, a removal. A move is repeated after a check of what the last try did.
"""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, TypeVar

import pyarrow.fs as pafs

import intarsia.deadline as deadline
from intarsia.io.fsspec_listing import ListingHandler, as_os_errors, is_fsspec
from intarsia.threads import awaited

T = TypeVar("T")
TRIES = 8
"""Tries of a request. At an error rate of 30 %, one request in 15,000 still fails."""
MAX_RETRY_SECONDS = 30.0
"""Seconds after the first try, from which on a read is not repeated."""
FIRST_PAUSE_SECONDS = 0.05
"""Longest pause before the first repetition. It doubles with each repetition."""
LONGEST_SECONDS = 2.0
"""Upper bound of the pause before any repetition."""
_TRANSIENT_STATUSES = {408, 425, 429, 500, 502, 503, 504}
_TRANSIENT_MESSAGE = re.compile(
    r"\b(?:HTTP(?:/[\d.]+)?(?: status| error| response)?(?: code)?:? ?|status(?: code)?[:=]? ?"
    r"|^|\()(?:408|425|429|500|502|503|504)\b"
    r"|slow ?down|slow_down|throttl|too many requests|service ?_?unavailable|internal_failure"
    r"|internal ?server ?error|InternalError|server ?busy|request_?timeout|timed? ?out|timeout"
    r"|network_connection|connection (?:was )?(?:reset|closed|aborted|lost)|broken pipe"
    r"|curlCode: (?:18|28|35|52|55|56|92)\b|disconnected|incomplete ?read|partial file"
    r"|payload is not completed|remote end closed|unexpected (?:eof|end of)",
    re.IGNORECASE,
)
_UNREACHABLE_MESSAGE = re.compile(r"curlCode: (?:[1-7]|60|77)\b", re.IGNORECASE)
"""No such host, no server that listens there, or a host with a wrong certificate."""
_PERMANENT_ERRORS = (
    FileNotFoundError,
    PermissionError,
    IsADirectoryError,
    NotADirectoryError,
    ConnectionRefusedError,
)
_TRANSIENT_ERRORS = TimeoutError, ConnectionError, InterruptedError


def retried(filesystem: pafs.FileSystem, request: Callable[[], T], *, is_write: bool = False) -> T:
    """Returns the result of ``request``, which is repeated after transient errors.

    Raises the error of the last try. If ``is_write``, the request runs in the calling thread, so
    that no part of it continues after the call. It is then repeated no matter how long a try takes,
    as uploads are long, and all errors of its client are ``OSError``.
    """
    if not is_remote(filesystem):
        return request()
    started, tries = time.monotonic(), 1
    while True:
        try:
            if not is_write:
                return awaited(request)
            with as_os_errors():
                return request()
        except OSError as error:
            pause = random.uniform(0, min(FIRST_PAUSE_SECONDS * 2 ** (tries - 1), LONGEST_SECONDS))
            is_late = not is_write and time.monotonic() + pause - started > MAX_RETRY_SECONDS
            if tries == TRIES or is_late or not is_transient(error):
                raise
        deadline.pause(pause)
        tries += 1


def infos_of(filesystem: pafs.FileSystem, of: Any) -> Any:
    """Returns the result of ``filesystem.get_file_info`` for a path, a list or a selector."""
    handler = getattr(filesystem, "handler", None)
    if not isinstance(handler, ListingHandler):
        return retried(filesystem, lambda: filesystem.get_file_info(of))
    ask = partial(retried, filesystem)  # each path and each folder may take a request of its own
    if isinstance(of, pafs.FileSelector):
        return handler.listed(of, ask)
    return handler.info(of, ask) if isinstance(of, str) else [handler.info(one, ask) for one in of]


def is_remote(filesystem: pafs.FileSystem) -> bool:
    """Returns False if a file system is, or wraps, one of the local disk."""
    if isinstance(filesystem, pafs.SubTreeFileSystem):
        return is_remote(filesystem.base_fs)
    if not is_fsspec(filesystem):
        return not isinstance(filesystem, pafs.LocalFileSystem)
    inner: Any = filesystem.handler.fs
    while inner is not None:
        if any(kind.__name__ == "LocalFileSystem" for kind in type(inner).__mro__):
            return False
        inner = getattr(inner, "fs", None)
    return True


def is_transient(error: BaseException) -> bool:
    """True if a request may succeed when it is repeated."""
    errors = list(_error_and_causes(error))
    if any(
        isinstance(cause, _PERMANENT_ERRORS) or _UNREACHABLE_MESSAGE.search(str(cause))
        for cause in errors
    ):
        return False
    return any(
        isinstance(cause, _TRANSIENT_ERRORS)
        or _status_of(cause) in _TRANSIENT_STATUSES
        or _TRANSIENT_MESSAGE.search(str(cause))
        for cause in errors
    )


def _error_and_causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yields an error and its causes."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__


def _status_of(error: BaseException) -> object:
    """Returns the HTTP status of a client library's error, or None."""
    response = getattr(error, "response", None)
    if isinstance(response, dict):  # botocore's
        return response.get("ResponseMetadata", {}).get("HTTPStatusCode")
    for name in ("status", "status_code", "code"):
        value = getattr(error, name, None)
        if isinstance(value, int):
            return value
    return getattr(response, "status_code", None)
