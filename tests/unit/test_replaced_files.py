"""Files that are replaced when their handle is closed, between planning and reading.

Every reader answers from one version of each file. Processes with few file descriptors close
handles: here only one is open at a time.
"""

import contextlib
import itertools
import os
import resource
import shutil
import threading
from collections import Counter
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs
import pytest

import intarsia as ia
from intarsia.catalog import catalog
from intarsia.dataset import explain
from intarsia.file import open_file
from intarsia.io import storage
from intarsia.io.storage import FileSource
from intarsia.scan import units

FILES, ROWS = 9, 300
KEY, LOW, SOME, ALL = (
    pc.field("k") == 3 * ROWS + 7,
    pc.field("n") < 120,
    pc.field("n") - pc.divide(pc.field("n"), 5) * 5 == 2,
    pc.field("file") >= 0,
)


def rows_of(file, version):
    """The rows of a version; later versions have fewer rows, at other positions."""
    n = np.roll(np.arange(ROWS - version), 37 * version)
    return pa.table(
        {
            "k": file * ROWS + n,
            "file": np.full(len(n), file),
            "version": np.full(len(n), version),
            "n": n,
            "text": [f"file {file}, version {version}, row {row}" for row in n.tolist()],
        }
    )


@pytest.fixture(scope="module")
def versions(tmp_path_factory):
    """Files of versions 0 to 3, to be copied."""
    folder = tmp_path_factory.mktemp("versions")
    for file in range(FILES):
        for version in range(4):
            ia.write_table(
                rows_of(file, version),
                folder / f"{file}.{version}",
                indexes=["k:lookup", "n:minmax"],
                row_group_size=100,
                max_rows_per_page=20,
                write_batch_size=10,
            )
    return folder


class Lake:
    """The folder. ``replacements`` counts those of each file, and ``most`` limits them."""

    def __init__(self, folder, versions):
        self.folder, self.versions = folder, versions
        self.replacements, self.most = Counter(), 0
        self.lock = threading.Lock()

    def publish(self, file):
        number = self.replacements[file]
        shutil.copy(self.versions / f"{file}.{number}", self.folder.parent / "new")
        os.replace(self.folder.parent / "new", self.folder / f"{file}.parquet")

    def replace(self, path):
        file = int(os.path.basename(path).partition(".")[0])
        with self.lock:
            if self.replacements[file] < self.most:
                self.replacements[file] += 1
                self.publish(file)


@pytest.fixture
def lake(tmp_path, versions, monkeypatch):
    (tmp_path / "lake").mkdir()
    made = Lake(tmp_path / "lake", versions)
    for file in range(FILES):
        made.publish(file)
    suspend = FileSource.suspend

    def suspend_and_replace(self):
        suspend(self)
        if self.path.startswith(str(made.folder)) and "_intarsia" not in self.path:
            made.replace(self.path)

    monkeypatch.setattr(storage, "max_open_local_files", lambda: 1)
    monkeypatch.setattr(FileSource, "suspend", suspend_and_replace)
    monkeypatch.setattr(units, "COSTS", replace(units.COSTS, unit_rows=40))
    return made


def check(actual, holds, columns=("file", "version", "n", "text")):
    """Asserts that ``actual`` has the rows of one version of each file for which ``holds(n)`` is
    true.
    """
    rows = {name: actual.column(name).to_pylist() for name in columns}
    by_file = {}
    for row in zip(*rows.values(), strict=True):
        by_file.setdefault(row[0], []).append(row)
    assert sorted(by_file) == list(range(FILES))
    for file, got in by_file.items():
        version = got[0][1]
        table = rows_of(file, version)
        expected = table.filter(pa.array([holds(n) for n in table["n"].to_pylist()]))
        assert got == list(zip(*(expected[name].to_pylist() for name in columns), strict=True))


def low(n):
    return n < 120


def some(n):
    return n % 5 == 2


def each(n):
    return True


def in_order(table):
    """Sorts rows: DuckDB gives files in any order, but each file's rows in order."""
    return table.take(np.argsort(table["file"].to_numpy(), kind="stable"))


def by_sql(condition):
    return lambda data: in_order(ia.sql(f"SELECT * FROM t WHERE {condition}", t=data))


def by_polars(data):
    import polars as pl

    return ia.polars.scan(data).filter(pl.col("n") < 120).collect().to_arrow()


def by_datafusion(data):
    from datafusion import SessionContext

    context = SessionContext()
    context.register_dataset("t", data)
    return in_order(pa.table(context.sql("SELECT * FROM t WHERE n < 120").to_arrow_table()))


def by_fragments(data):
    tables = [f.to_table(filter=LOW) for f in data.get_fragments(filter=LOW)]
    return pa.concat_tables(tables)


TABLES = {
    "to_table": (lambda data: data.to_table(filter=LOW), low),
    "to_table, another": (lambda data: data.to_table(filter=SOME), some),
    "to_table of all": (lambda data: data.to_table(), each),
    "to_batches": (lambda data: pa.Table.from_batches(data.to_batches(filter=LOW)), low),
    "one thread": (lambda data: data.to_table(filter=LOW, use_threads=False), low),
    "scanner": (lambda data: data.scanner(filter=LOW).to_table(), low),
    "head": (lambda data: data.head(10**6, filter=LOW), low),
    "sql": (by_sql("n < 120"), low),
    "sql, by DuckDB's filter": (by_sql("n % 5 = 2"), some),
    "sql, all": (by_sql("true"), each),
    "polars": (by_polars, low),
    "datafusion": (by_datafusion, low),
    "fragments": (by_fragments, low),
}


KINDS = ["plain", "catalog", "sidecars", "pages"]
BY_PYARROW = {("to_table of all", kind) for kind in KINDS} | {
    ("sql, all", "pages"),
    ("sql, by DuckDB's filter", "pages"),
}
"""Queries that pyarrow reads without closing our handles."""


@pytest.mark.filterwarnings("ignore:of . files looked into:intarsia.IntarsiaWarning")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", TABLES)
def test_an_answer_uses_one_version_of_each_file(lake, name, kind):
    data = opened_as(lake, kind)
    find, holds = TABLES[name]
    for most in (1, 2, 3):
        lake.most = most
        check(find(data), holds)
    if (name, kind) not in BY_PYARROW:
        assert lake.replacements.total() >= FILES // 2


def opened_as(lake, kind):
    if kind == "catalog":
        ia.build_catalog(lake.folder)
    if kind == "sidecars":
        for path in lake.folder.glob("*.parquet"):
            ia.add_indexes(path, ["text:lookup"], sidecar=True)
    return ia.dataset(lake.folder, reader="pages" if kind == "pages" else "auto")


def explained_by_sql(data, **options):
    explained = ia.explain_sql("SELECT * FROM t WHERE file >= 0", t=data, **options)
    return len(explained.tables["t"].files)


COUNTS = {
    "count": (lambda data: data.count_rows(filter=LOW), 120 * FILES),
    "count of a key": (lambda data: data.count_rows(filter=KEY), 1),
    "key": (lambda data: data.to_table(filter=KEY).num_rows, 1),
    "head": (lambda data: data.head(7, filter=LOW).num_rows, 7),
    "take": (lambda data: data.take([1, ROWS + 5, 4 * ROWS]).num_rows, 3),
    "take, filtered": (lambda data: data.take([1, 130, 400], filter=LOW).num_rows, 3),
    "explain": (lambda data: len(data.explain(filter=LOW, maps=2).files), FILES),
    "explain, analyzed": (lambda data: len(data.explain(filter=LOW, analyze=True).files), FILES),
    "explain, decided by statistics": (lambda data: len(data.explain(filter=ALL).files), FILES),
    "explain, all rows match": (
        lambda data: len(data.explain(filter=ALL, analyze=True).files),
        FILES,
    ),
    "explain_sql": (lambda data: explained_by_sql(data, analyze=False), FILES),
    "explain_sql, analyzed": (lambda data: explained_by_sql(data, analyze=True), FILES),
    "plan": (lambda data: len(data.plan(filter=LOW).files), FILES),
    "fragments": (lambda data: len(list(data.get_fragments(filter=KEY))), 1),
    "sql count": (
        lambda data: ia.sql("SELECT count(*) AS c FROM t WHERE n < 120", t=data)["c"][0].as_py(),
        120 * FILES,
    ),
    "sql key": (lambda data: ia.sql(f"SELECT * FROM t WHERE k = {ROWS}", t=data).num_rows, 1),
    "sql join": (
        lambda data: (
            ia.sql(
                "SELECT * FROM t JOIN u USING (k)", t=data, u=pa.table({"k": [7, ROWS + 8]})
            ).num_rows
        ),
        2,
    ),
    "sql first": (
        lambda data: ia.sql("SELECT k FROM t ORDER BY k LIMIT 3", t=data)["k"].to_pylist(),
        [0, 1, 2],
    ),
    "sql scalar": (
        lambda data: ia.sql("SELECT k FROM t WHERE k = (SELECT min(k) FROM t)", t=data)[
            "k"
        ].to_pylist(),
        [0],
    ),
    "sort": (lambda data: data.filter(LOW).sort_by("k").to_table().num_rows, 120 * FILES),
}


@pytest.mark.filterwarnings("ignore:of . files looked into:intarsia.IntarsiaWarning")
@pytest.mark.parametrize("kind", ["plain", "catalog", "sidecars", "pages"])
@pytest.mark.parametrize("name", COUNTS)
def test_rows_that_all_versions_have_are_found(lake, name, kind):
    data = opened_as(lake, kind)
    find, expected = COUNTS[name]
    for most in (1, 2, 3):
        lake.most = most
        assert find(data) == expected


@pytest.mark.parametrize("replaced_before", ["_account_of", "_unindexed_columns"])
@pytest.mark.parametrize("analyze", [False, True])
@pytest.mark.parametrize("indexes", [["text:lookup"], ["n:minmax"]])
@pytest.mark.parametrize("num_files", [3, 40])
def test_files_are_replaced_while_they_are_explained(
    num_files, indexes, analyze, replaced_before, tmp_path, monkeypatch
):
    """40 small files are read together, and their indexes are read for the explanation only."""
    paths = [tmp_path / f"{n}.parquet" for n in range(num_files)]
    for path in paths:
        ia.write_table(rows_of(0, 0), path, indexes=indexes)
    original, left = getattr(explain, replaced_before), [1] * len(paths)

    def replace_and_continue(*args, **options):
        if left:
            left.pop()
            for path in paths:
                shutil.copy(path, tmp_path / "new")
                os.replace(tmp_path / "new", path)
            storage.open_sources.release_handles()
        return original(*args, **options)

    monkeypatch.setattr(explain, replaced_before, replace_and_continue)
    explanation = ia.dataset(paths).explain(filter=LOW, analyze=analyze, maps=2)
    assert len(explanation.files) == len(paths)
    if analyze:
        assert explanation.run.num_rows == 120 * len(paths)


@pytest.mark.parametrize(
    "ask",
    [
        lambda data: data.to_table(filter=LOW),
        lambda data: data.count_rows(filter=SOME),
        lambda data: list(data.to_batches(filter=LOW)),
        lambda data: data.take([5]),
        lambda data: data.explain(filter=LOW),
        lambda data: data.explain(filter=LOW, analyze=True),
        lambda data: list(data.get_fragments(filter=LOW)),
        lambda data: ia.sql("SELECT * FROM t WHERE n < 120", t=data),
    ],
)
def test_a_file_that_changes_all_the_time_is_a_clear_error(lake, ask, monkeypatch):
    data, original = ia.dataset(lake.folder, reader="pages"), FileSource._was_written_to
    moments = itertools.count(10**18)

    def touched(self):
        if "_intarsia" not in self.path:
            os.utime(self.path, ns=(0, next(moments)))
        return original(self)

    monkeypatch.setattr(FileSource, "_was_written_to", touched)
    with pytest.raises(ia.PathError, match=r"parquet.*: the file was replaced 20 times") as error:
        ask(data)
    assert isinstance(error.value, open_file.ChangesTooOften)


def test_a_file_that_is_read_in_units_stays_open_from_the_first_to_the_last(lake):
    data = ia.dataset(lake.folder)
    batches = data.to_batches(filter=LOW, use_threads=False)
    first = next(batches)
    lake.most = 1
    storage.open_sources.release_handles()
    table = pa.Table.from_batches([first, *batches])
    check(table, low)
    assert set(table.filter(pc.field("file") == 0)["version"].to_pylist()) == {0}


def test_a_file_deleted_before_it_is_read_is_named(lake):
    data = ia.dataset(lake.folder)
    data.count_rows(filter=LOW)
    (lake.folder / "4.parquet").unlink()
    for name in ("to_table", "sql", "head", "to_batches"):
        with pytest.raises(ia.PathError, match=r"4\.parquet: there is no such file") as error:
            TABLES[name][0](data)
        assert "open the data set again" in "".join(error.value.__notes__)


def test_a_file_deleted_while_it_is_read_is_read_to_its_end(lake):
    batches = ia.dataset(lake.folder / "4.parquet").to_batches(filter=LOW, use_threads=False)
    first = next(batches)
    (lake.folder / "4.parquet").unlink()
    storage.open_sources.release_handles()
    assert pa.Table.from_batches([first, *batches]).num_rows == 120


def test_a_cache_frees_the_tails_of_files_whose_handles_are_closed(lake, monkeypatch):
    monkeypatch.setattr(storage, "max_open_local_files", lambda: 128)
    cache = ia.dataset(lake.folder).scan_source.cache
    file = cache.get(str(lake.folder / "4.parquet"))
    before = file.held_bytes
    assert cache._num_bytes == before
    storage.open_sources.release_handles()
    assert cache._num_bytes == file.held_bytes < before


def test_more_files_are_read_than_the_process_may_open(lake, monkeypatch):
    """Other handles are closed, and files are opened again."""
    monkeypatch.setattr(storage, "max_open_local_files", lambda: 128)
    data, limits = ia.dataset(lake.folder), resource.getrlimit(resource.RLIMIT_NOFILE)
    assert data.count_rows(filter=LOW) == 120 * FILES
    taken, used = [], len(os.listdir("/proc/self/fd"))
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (used + 32, limits[1]))
        with contextlib.suppress(OSError):
            while True:
                taken.append(os.open(os.devnull, os.O_RDONLY))
        data.scan_source.cache.clear()
        os.close(taken.pop())
        assert data.count_rows(filter=LOW) == 120 * FILES
    finally:
        for handle in taken:
            os.close(handle)
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_data_sets_of_replaced_files_and_catalogs_keep_few_handles(versions, tmp_path, monkeypatch):
    """Counts handles of data files, sidecars and catalog tables."""
    monkeypatch.setattr(catalog, "gap_bytes", lambda _: 0)  # smaller tables are read in one request
    limits, folder, used = resource.getrlimit(resource.RLIMIT_NOFILE), tmp_path / "lake", []
    folder.mkdir()
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (200, limits[1]))
        before = len(os.listdir("/proc/self/fd"))
        for generation in range(25):
            file, version = generation % FILES, generation // FILES
            shutil.copy(versions / f"{file}.{version}", tmp_path / "new")
            (tmp_path / "new").rename(folder / f"{file}.parquet")
            ia.add_indexes(folder / f"{file}.parquet", ["text:lookup"], sidecar=True)
            ia.build_catalog(folder, refresh=generation > 0)
            used.append(ia.dataset(folder))
            assert used[-1].count_rows(filter=LOW) == 120 * min(generation + 1, FILES)
            assert used[-1].count_rows(filter=KEY) == (generation >= 3)
        for data in used:
            assert data.to_table(filter=KEY).num_rows == (len(data.files) > 3)
        assert len(os.listdir("/proc/self/fd")) - before <= 200 // 4
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_files_that_no_one_reads_any_more_do_not_close_others(tmp_path):
    path = str(tmp_path / "a")
    (tmp_path / "a").write_bytes(b"abc")
    first = storage.FileSource(pafs.LocalFileSystem(), path)
    first.read([(0, 3)])
    suspended = []
    first.on_suspend = lambda: suspended.append(path)
    for _ in range(2 * storage.max_open_local_files()):
        storage.FileSource(pafs.LocalFileSystem(), path).read([(0, 3)])
    assert suspended == []
    others = [storage.FileSource(pafs.LocalFileSystem(), path) for _ in range(200)]
    for other in others:
        other.read([(0, 3)])
    assert suspended == [path]
