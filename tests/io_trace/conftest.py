"""An S3 server on loopback, which logs requests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from s3_server import Server, serve


@pytest.fixture(scope="session")
def s3() -> Iterator[Server]:
    """A server with an empty bucket ``lake``."""
    with serve() as server:
        yield server
