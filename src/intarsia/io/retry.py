"""One policy for requests to remote storage that fail for a moment.

A request is made again where the store says that it is busy (429, 500, 502, 503, 504, SlowDown and
the like), does not answer in time, or the connection is cut. It is made up to ``TRIES`` times,
within ``MOST_SECONDS`` of the first try. Before the n-th repetition the caller sleeps a random time
of up to ``FIRST_SECONDS * 2 ** (n - 1)`` seconds, at most ``LONGEST_SECONDS``: clients that were
turned away together do not come back together. Anything else fails at once: a file that is not
there, a host that is not reached, a refusal, wrong credentials, errors of local disks.

Requests that change something are repeated if that does no harm: an upload of bytes that are still
at hand, a new folder, a removal. A move is repeated after a look at what the last try did.
"""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import pyarrow.fs as pafs

from intarsia import deadline
from intarsia.io.fsspec_listing import is_fsspec, own_errors
from intarsia.threads import awaited

T = TypeVar("T")
TRIES = 8
"""How often a request is made: at a fault rate of 30 % one in 15,000 fails for good."""
MOST_SECONDS = 30.0
"""After so long since the first try, a request is not made again."""
FIRST_SECONDS = 0.05
LONGEST_SECONDS = 2.0
_BUSY = {408, 425, 429, 500, 502, 503, 504}
_SAYS_SO = re.compile(
    r"\b(?:HTTP(?:/[\d.]+)?(?: status| error| response)?(?: code)?:? ?|status(?: code)?[:=]? ?"
    r"|^|\()(?:408|425|429|500|502|503|504)\b"
    r"|slow ?down|slow_down|throttl|too many requests|service ?_?unavailable|internal_failure"
    r"|internal ?server ?error|InternalError|server ?busy|request_?timeout|timed? ?out|timeout"
    r"|network_connection|connection (?:was )?(?:reset|closed|aborted|lost)|broken pipe"
    r"|curlCode: (?:18|28|35|52|55|56|92)\b|disconnected|incomplete ?read|partial file"
    r"|payload is not completed|remote end closed|unexpected (?:eof|end of)",
    re.IGNORECASE,
)
_NOT_REACHED = re.compile(r"curlCode: (?:[1-7]|60|77)\b", re.IGNORECASE)
"""No such host, nobody who listens there, or not the one that is meant."""
_FOR_GOOD = (
    FileNotFoundError,
    PermissionError,
    IsADirectoryError,
    NotADirectoryError,
    ConnectionRefusedError,
)
_FOR_A_MOMENT = TimeoutError, ConnectionError, InterruptedError


def retried(filesystem: pafs.FileSystem, request: Callable[[], T], *, is_write: bool = False) -> T:
    """Returns what ``request`` does, which is made again where it fails for a moment.

    Raises what the last try raised. If ``is_write``, the request runs in this thread, so that
    nothing of it goes on after the call, and is repeated however long a try takes: uploads are
    long. All errors of its client are ``OSError`` then.
    """
    if not is_remote(filesystem):
        return request()
    started, tries = time.monotonic(), 1
    while True:
        try:
            if not is_write:
                return awaited(request)
            with own_errors():
                return request()
        except OSError as error:
            pause = random.uniform(0, min(FIRST_SECONDS * 2 ** (tries - 1), LONGEST_SECONDS))
            is_late = not is_write and time.monotonic() + pause - started > MOST_SECONDS
            if tries == TRIES or is_late or not is_transient(error):
                raise
        deadline.pause(pause)
        tries += 1


def infos_of(filesystem: pafs.FileSystem, of: Any) -> Any:
    """Returns what ``filesystem.get_file_info`` does of a path, of several or of a selector."""
    return retried(filesystem, lambda: filesystem.get_file_info(of))


def is_remote(filesystem: pafs.FileSystem) -> bool:
    """True unless a file system is the local disk's, or derived from one of these."""
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
    """True if a request may succeed when it is made again."""
    errors = list(_led_to(error))
    if any(isinstance(one, _FOR_GOOD) or _NOT_REACHED.search(str(one)) for one in errors):
        return False
    return any(
        isinstance(one, _FOR_A_MOMENT) or _status_of(one) in _BUSY or _SAYS_SO.search(str(one))
        for one in errors
    )


def _led_to(error: BaseException | None) -> Iterator[BaseException]:
    """An error and its causes."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__


def _status_of(error: BaseException) -> object:
    """The HTTP status that an error of a client library has, whatever it calls that."""
    response = getattr(error, "response", None)
    if isinstance(response, dict):  # botocore's
        return response.get("ResponseMetadata", {}).get("HTTPStatusCode")
    for name in ("status", "status_code", "code"):
        value = getattr(error, name, None)
        if isinstance(value, int):
            return value
    return getattr(response, "status_code", None)
