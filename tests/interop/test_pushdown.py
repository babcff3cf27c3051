from __future__ import annotations

import datetime
import io
import threading
from dataclasses import dataclass
from pathlib import Path

import datafusion
import duckdb
import fsspec.implementations.local
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.dataset as pads
import pytest

import intarsia as ia

FILE_ROWS = 20_000
DAYS = ["2024-01-01", "2024-01-02", "2024-01-03"]
FILES_A_DAY = 2
ROWS = FILE_ROWS * len(DAYS) * FILES_A_DAY
field = pads.field


class Counter:
    """Counts the bytes read from files by any reader."""

    def __init__(self) -> None:
        self.bytes = 0
        self._lock = threading.Lock()

    def add(self, count: int) -> None:
        with self._lock:
            self.bytes += count


class CountingFile(io.FileIO):
    def __init__(self, path: str, counter: Counter) -> None:
        super().__init__(path)
        self._counter = counter

    def read(self, size: int = -1, /) -> bytes:
        data = super().read(size)
        self._counter.add(len(data))
        return data

    def __del__(self) -> None:
        self.close()  # readers that do not close their files are not the subject of these tests


class CountingFileSystem(fsspec.implementations.local.LocalFileSystem):
    """A local file system that counts bytes; pyarrow's C++ readers use it as well."""

    cachable = False

    def __init__(self, counter: Counter) -> None:
        super().__init__()
        self.counter = counter

    def open(self, path: str, mode: str = "rb", **_: object) -> CountingFile:
        assert mode == "rb"
        return CountingFile(self._strip_protocol(path), self.counter)


@dataclass(frozen=True)
class Case:
    """A condition as SQL and as an Expression, and the greatest share of bytes it may read."""

    sql: str
    expression: pads.Expression
    share: float


def trace_id(number: int) -> str:
    return f"{number * 2654435761 % 2**32:08x}"


def on_day(*day: int):
    return field("day") == datetime.date(*day)


A, B, C = trace_id(7), trace_id(60_007), trace_id(ROWS - 1)
CASES = {
    "equals": Case(f"trace = '{A}'", field("trace") == A, 0.1),
    "equals_nothing": Case("trace = 'zzz'", field("trace") == "zzz", 0.1),
    "in": Case(f"trace IN ('{A}', '{B}', '{C}')", field("trace").isin([A, B, C]), 0.15),
    "range": Case(
        "seq >= 50000 AND seq < 50100", (field("seq") >= 50000) & (field("seq") < 50100), 0.1
    ),
    "above": Case("seq > 119900", field("seq") > 119_900, 0.1),
    "and": Case(f"trace = '{B}' AND seq > 100", (field("trace") == B) & (field("seq") > 100), 0.1),
    "and_contradicting": Case(
        f"trace = '{B}' AND seq < 100", (field("trace") == B) & (field("seq") < 100), 0.1
    ),
    "or": Case(
        f"trace = '{A}' OR seq = 77777", (field("trace") == A) | (field("seq") == 77777), 0.12
    ),
    "or_with_folder": Case(
        f"trace = '{A}' OR (day = DATE '2024-01-03' AND seq < 80010)",
        (field("trace") == A) | ((on_day(2024, 1, 3)) & (field("seq") < 80010)),
        0.12,
    ),
    "folder": Case(
        f"day = DATE '2024-01-02' AND trace IN ('{A}', '{B}')",
        (on_day(2024, 1, 2)) & field("trace").isin([A, B]),
        0.08,
    ),
    "folder_of_nothing": Case("day = DATE '2023-01-01'", on_day(2023, 1, 1), 0.08),
}


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lake")
    noise = np.random.default_rng(1)
    start = 0
    for day in DAYS:
        (folder / f"day={day}").mkdir()
        for part in range(FILES_A_DAY):
            seq = np.arange(start, start + FILE_ROWS)
            payload = [noise.bytes(60).hex() for _ in range(FILE_ROWS)]
            table = pa.table(
                {"seq": seq, "trace": [trace_id(n) for n in seq.tolist()], "payload": payload}
            )
            path = folder / f"day={day}" / f"part-{part}.parquet"
            indexes = [ia.Lookup("trace", granule_rows=256)]
            ia.write_table(
                table, path, indexes=indexes, max_rows_per_page=256, write_batch_size=256
            )
            start += FILE_ROWS
    return folder


@pytest.fixture(scope="module")
def plain(lake: Path) -> pads.Dataset:
    days = pads.partitioning(pa.schema([("day", pa.date32())]), flavor="hive")
    return pads.dataset(lake, partitioning=days)


@pytest.fixture
def counter(monkeypatch: pytest.MonkeyPatch) -> Counter:
    # Only pyarrow's own file systems count as local. This makes the test's count as local too.
    monkeypatch.setattr("intarsia.io.storage.REMOTE_GAP_BYTES", 4096)
    monkeypatch.setattr("intarsia.io.storage.REMOTE_TAIL_BYTES", 4096)
    return Counter()


@pytest.fixture
def logs(lake: Path, counter: Counter) -> ia.Dataset:
    actual = ia.dataset(lake, filesystem=CountingFileSystem(counter))
    counter.bytes = 0
    return actual


def ask_duckdb(logs: ia.Dataset, case: Case) -> pa.Table:
    with duckdb.connect() as connection:
        connection.register("logs", logs)
        return connection.sql(f"SELECT * FROM logs WHERE {case.sql}").to_arrow_table()


def ask_polars(logs: ia.Dataset, case: Case) -> pa.Table:
    frame = pl.scan_pyarrow_dataset(logs).filter(pl.sql_expr(case.sql)).collect()
    return frame.to_arrow(compat_level=pl.CompatLevel.oldest())


def ask_datafusion(logs: ia.Dataset, case: Case) -> pa.Table:
    context = datafusion.SessionContext()
    context.register_dataset("logs", logs)
    return context.sql(f"SELECT * FROM logs WHERE {case.sql}").to_arrow_table()


def ask_pyarrow(logs: ia.Dataset, case: Case) -> pa.Table:
    return logs.to_table(filter=case.expression)


def ask_sql(logs: ia.Dataset, case: Case) -> pa.Table:
    return ia.sql(f"SELECT * FROM logs WHERE {case.sql}", logs=logs)


def ask_scan(logs: ia.Dataset, case: Case) -> pa.Table:
    frame = ia.polars.scan(logs).filter(pl.sql_expr(case.sql)).collect()
    return frame.to_arrow(compat_level=pl.CompatLevel.oldest())


ENGINES = {
    "ia.sql": ask_sql,
    "ia.polars.scan": ask_scan,
    "duckdb": ask_duckdb,
    "polars": ask_polars,
    "datafusion": ask_datafusion,
    "pyarrow": ask_pyarrow,
}


def rows(table: pa.Table) -> list[dict[str, object]]:
    return table.select(["seq", "trace", "payload", "day"]).sort_by("seq").to_pylist()


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
@pytest.mark.parametrize("engine", ENGINES)
def test_an_engine_gives_the_answer_and_reads_few_bytes(engine, case, logs, plain, lake, counter):
    answer = ENGINES[engine](logs, case)
    expected = rows(plain.to_table(filter=case.expression))
    assert rows(answer) == expected
    total = sum(file.stat().st_size for file in lake.rglob("*.parquet"))
    assert counter.bytes < case.share * total
    assert counter.bytes > 0 or not expected


@pytest.mark.parametrize("engine", ENGINES)
def test_bytes_read_by_a_full_scan_are_counted_too(engine, logs, lake, counter):
    everything = Case("seq >= 0", field("seq") >= 0, 1)
    assert ENGINES[engine](logs, everything).num_rows == ROWS
    assert counter.bytes > 0.8 * sum(file.stat().st_size for file in lake.rglob("*.parquet"))


def test_a_folder_that_cannot_match_is_not_opened(logs, counter, monkeypatch):
    opened = []
    real = CountingFileSystem.open

    def spy(self, path, *args, **kwargs):
        opened.append(path)
        return real(self, path, *args, **kwargs)

    monkeypatch.setattr(CountingFileSystem, "open", spy)
    actual = logs.to_table(filter=(on_day(2024, 1, 2)) & (field("trace") == A))
    assert actual.num_rows == 0
    assert {Path(path).parent.name for path in opened} == {"day=2024-01-02"}


def test_duckdb_joins_two_differently_filtered_uses_of_one_data_set(logs, plain, counter, lake):
    with duckdb.connect() as connection:
        connection.register("logs", logs)
        query = "SELECT a.seq, b.seq FROM {} a, {} b WHERE a.trace = '{}' AND b.trace = '{}'"
        actual = connection.sql(query.format("logs", "logs", A, B)).fetchall()
    assert actual == [(7, 60_007)]
    assert counter.bytes < 0.2 * sum(file.stat().st_size for file in lake.rglob("*.parquet"))


@pytest.mark.parametrize("engine", ["duckdb", "datafusion"])
def test_counting_matches_costs_few_bytes(engine, logs, counter, lake):
    sql = f"SELECT count(*) AS n FROM logs WHERE trace = '{A}' OR seq BETWEEN 30000 AND 30009"
    if engine == "duckdb":
        with duckdb.connect() as connection:
            connection.register("logs", logs)
            actual = connection.sql(sql).to_arrow_table()
    else:
        context = datafusion.SessionContext()
        context.register_dataset("logs", logs)
        actual = context.sql(sql).to_arrow_table()
    assert actual.to_pydict() == {"n": [11]}
    assert counter.bytes < 0.12 * sum(file.stat().st_size for file in lake.rglob("*.parquet"))
