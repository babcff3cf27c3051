"""Delta and Iceberg tables on S3: opened by URI and options, indexed, and read by few requests.

The server is another process, since deltalake keeps this one from answering while it waits.
"""

from __future__ import annotations

import pickle
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import deltalake
import pyarrow as pa
import pyarrow.fs as pafs
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import StaticTable

import intarsia as ia

FILES, ROWS = 4, 1000
SECRET = "do-not-show-me"
WHERE = "key = 'k0007'"
EXPECTED = [n for n in range(FILES * ROWS) if n * 7 % 3001 == 7]
MOST_REQUESTS = {
    ("delta", True): (9, 3),
    ("iceberg", True): (5, 1),
    ("delta", False): (33, 12),
    ("iceberg", False): (17, 4),
}
"""Requests of the first query and of the next, by kind of table and whether it has sidecars.

deltalake makes three requests to look up a file, and pyarrow one.
"""


@dataclass
class Server:
    """A server with the bucket ``lake``, and the file into which it logs requests."""

    port: int
    log: Path

    @property
    def endpoint(self):
        return f"http://127.0.0.1:{self.port}"

    @property
    def options(self):
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ALLOW_HTTP": "true",
            "AWS_ACCESS_KEY_ID": "a",
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_REGION": "us-east-1",
        }

    @property
    def properties(self):
        return {
            "s3.endpoint": self.endpoint,
            "s3.access-key-id": "a",
            "s3.secret-access-key": SECRET,
            "s3.region": "us-east-1",
        }

    @property
    def filesystem(self):
        return pafs.S3FileSystem(
            access_key="a",
            secret_key=SECRET,
            region="us-east-1",
            endpoint_override=self.endpoint,
            scheme="http",
            allow_bucket_creation=True,
        )

    def requests(self, action):
        """The requests to data files and sidecars during an action, and its result."""
        start = self.log.stat().st_size
        result = action()
        with self.log.open("rb") as log:
            log.seek(start)
            lines = log.read().decode().splitlines()
        return [line for line in lines if "HTTP/1.1" in line], result


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    log = tmp_path_factory.mktemp("server") / "log"
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with log.open("wb") as out, subprocess.Popen(command, stdout=out, stderr=out) as process:
        try:
            _wait_for(port)
            made = Server(port, log)
            made.filesystem.create_dir("lake")
            yield made
        finally:
            process.kill()


def _wait_for(port):
    latest = time.monotonic() + 300
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except OSError:
            assert time.monotonic() < latest
            time.sleep(0.05)
        else:
            return


def rows(file):
    numbers = range(file * ROWS, (file + 1) * ROWS)
    return pa.table({"id": numbers, "key": [f"k{n * 7 % 3001:04}" for n in numbers]})


@pytest.fixture(scope="module")
def delta(server):
    """The URI of a table."""
    for file in range(FILES):
        deltalake.write_deltalake(
            "s3://lake/delta", rows(file), mode="append", storage_options=server.options
        )
    return "s3://lake/delta"


@pytest.fixture(scope="module")
def iceberg(server, tmp_path_factory):
    folder = tmp_path_factory.mktemp("catalog")
    settings = {"uri": f"sqlite:///{folder}/c.db", "warehouse": "s3://lake/iceberg"}
    catalog = SqlCatalog("c", **settings, **server.properties)
    catalog.create_namespace("n")
    table = catalog.create_table("n.t", schema=rows(0).schema)
    for file in range(FILES):
        table.append(rows(file))
    yield table
    catalog.close()


def ids(data, **options):
    return sorted(data.to_table(filter=WHERE, **options)["id"].to_pylist())


def test_delta_tables_are_opened_by_uri_and_options(server, delta, monkeypatch):
    by_options = ia.delta(delta, storage_options=server.options)
    assert ids(by_options) == EXPECTED
    assert ids(pickle.loads(pickle.dumps(by_options))) == EXPECTED
    opened = deltalake.DeltaTable(delta, storage_options=server.options)
    assert ids(ia.delta(opened)) == EXPECTED
    assert ia.delta(opened, version=1).count_rows() == 2 * ROWS
    for name, value in server.options.items():
        monkeypatch.setenv(name, value)
    assert ids(ia.delta(delta)) == EXPECTED
    assert ids(ia.delta(delta, filesystem=server.filesystem)) == EXPECTED


def test_iceberg_tables_are_opened_by_their_properties(server, iceberg):
    assert ids(ia.iceberg(iceberg)) == EXPECTED
    static = StaticTable.from_metadata(iceberg.metadata_location, server.properties)
    data = ia.iceberg(static)
    assert ids(data) == EXPECTED
    assert ids(pickle.loads(pickle.dumps(data))) == EXPECTED


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
@pytest.mark.parametrize("sidecar", [True, False], ids=["sidecar", "embedded"])
def test_a_lookup_makes_few_requests(kind, sidecar, server, request):
    """Later queries check that files are the same, and read nothing again.

    Bounds leave one file of four for an ``id``, and all for a ``key``.
    """
    table = request.getfixturevalue(kind)

    def opened():
        if kind == "delta":
            return ia.delta(table, storage_options=server.options)
        return ia.iceberg(table)

    name = "id" if sidecar else "key"
    ia.add_indexes(opened(), [f"lookup({name})"], sidecar=sidecar)
    where = f"id = {EXPECTED[0]}" if sidecar else WHERE
    expected = EXPECTED[:1] if sidecar else EXPECTED
    data = opened()
    first, answer = server.requests(lambda: data.to_table(filter=where))
    assert sorted(answer["id"].to_pylist()) == expected
    assert f"{name}:lookup" in str(data.explain(filter=where))
    later, answer = server.requests(lambda: data.to_table(filter=where))
    assert sorted(answer["id"].to_pylist()) == expected
    most = MOST_REQUESTS[kind, sidecar]
    assert len(first) <= most[0]
    assert len(later) <= most[1]


def test_no_message_has_a_credential(server, delta, iceberg):
    """Errors of absent tables, versions and files, data sets and plans are shown."""
    options, shown = server.options, []
    for path, version in (("s3://lake/absent", None), (delta, 99)):
        with pytest.raises(ia.PathError) as absent:
            ia.delta(path, version=version, storage_options=options)
        shown.append(str(absent.value))
        assert "\x1b" not in shown[-1]
        assert "\n" not in shown[-1]
    for data in (ia.delta(delta, storage_options=options), ia.iceberg(iceberg)):
        shown += [repr(data), str(data.explain(filter=WHERE)), str(data.table_snapshot)]
        data.filesystem.delete_file(data.files[0])
        with pytest.raises(ia.PathError, match=r"version 3|snapshot") as removed:
            data.to_table()
        shown.append(str(removed.value))
    assert not [text for text in shown if SECRET in text]
