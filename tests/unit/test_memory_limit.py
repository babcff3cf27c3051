"""Calls keep the memory limit, in separate processes, and answer as without a limit."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import intarsia as ia
from intarsia import memory
from intarsia.cli.command_line import cli
from intarsia.deadline import time_limit
from intarsia.writer import parquet_writer

MIB = 1024 * 1024
GROUP_ROWS = 300_000
LONG_ROWS = 600_000
FILES = ("plain", "long", "many")


def rows_of(count, start=0):
    rng = np.random.default_rng(start)
    words = pa.array([f"service-{i:03}" for i in range(300)])
    return pa.table(
        {
            "id": np.arange(start, start + count),
            "user": rng.integers(0, 1_000_000, count),
            "amount": rng.random(count),
            "service": words.take(pa.array(rng.integers(0, 300, count))),
            "trace": np.char.mod("%016x", rng.integers(0, 2**60, count)),
            "tags": pa.array([[1, 2], [], None, [3]] * (count // 4)),
        }
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Files without page indexes, of large row groups, of long values, and many files."""
    folder = tmp_path_factory.mktemp("budget")
    with pq.ParquetWriter(folder / "plain.parquet", rows_of(4).schema) as writer:
        for group in range(2):
            writer.write_table(rows_of(GROUP_ROWS, group * GROUP_ROWS), GROUP_ROWS)
    values = pa.array([f"{i:08}" + "x" * 1016 for i in range(100)])
    part = values.take(pa.array(np.arange(100_000) % 100))
    table = pa.table({"trace": pa.chunked_array([part] * (LONG_ROWS // len(part)))})
    pq.write_table(
        table, folder / "long.parquet", compression="zstd", row_group_size=LONG_ROWS,
        write_statistics=False,
    )  # fmt: skip
    (folder / "many.parquet").mkdir()
    for number in range(30):
        part = rows_of(8_000, number * 8_000)
        pq.write_table(part, folder / "many.parquet" / f"{number:03}.parquet")
    return folder


MEASURING = """
    import ctypes, json, os, shutil, sys
    import pyarrow as pa, pyarrow.parquet as pq
    import intarsia as ia

    def status(key):
        with open("/proc/self/status") as lines:
            return next(int(line.split()[1]) for line in lines if line.startswith(key)) * 1024

    def tidy():
        pa.default_memory_pool().release_unused()
        ctypes.CDLL(None).malloc_trim(0)
        with open("/proc/self/clear_refs", "w") as refs:
            refs.write("5")  # the peak is counted anew
"""
CALLS = """
    import contextlib, io, zlib
    import numpy as np, pyarrow.compute as pc
    from intarsia.cli.command_line import cli

    path, work, limit = sys.argv[1:]
    os.makedirs(work)
    tiny, copy, out = (os.path.join(work, name) for name in ("tiny", "copy", "out"))
    query = "SELECT left(trace, 8) k, count(*) n FROM t GROUP BY k ORDER BY n DESC, k LIMIT 3"
    few, most = pc.field("trace") < "00000007", pc.field("trace") > "00000010"

    def digest(batches):
        # The number of rows, the sum of their tags, and a checksum of their strings' bytes.
        rows = tags = found = 0
        for batch in batches:
            if "tags" in batch.schema.names:
                tags += pc.sum(pc.list_flatten(batch["tags"])).as_py() or 0
            values = batch["trace"]
            _, offsets, data = values.buffers()
            ends = np.frombuffer(offsets, np.int32)[values.offset :][: len(values) + 1]
            found = zlib.crc32(memoryview(data)[ends[0] : ends[-1]], found)
            rows += batch.num_rows
        return rows, tags, found

    def of_table(**options):
        return lambda path: digest(ia.dataset(path).to_table(**options).to_batches())

    def iterated(path):
        return os.path.isdir(path) or digest(ia.ParquetFile(path).iter_batches())

    def added(path):
        names = ["page_index", "trace:bloom", "trace:lookup", "trace:minmax"]
        return [sorted(report.added) for report in ia.add_indexes(path, names)]

    def written(path):
        with contextlib.redirect_stderr(io.StringIO()):
            cli(["write", path, out, "--index", "trace:lookup"], standalone_mode=False)
        return pq.ParquetFile(out).metadata.num_rows

    def table_written(path):
        table = ia.dataset(path).head(50_000)
        ia.write_table(table, out, indexes=["trace:lookup"])
        return digest(ia.dataset(out).to_batches())

    def recovered(path):
        if os.path.isdir(path):
            return None
        whole = os.path.getsize(path)
        shutil.copy(path, out + ".torn")
        os.truncate(out + ".torn", whole - 20)
        return ia.recover(out + ".torn", out, schema_from=path).rows

    calls = {
        "to_batches": lambda path: digest(ia.dataset(path).to_batches()),
        "filtered": lambda path: digest(ia.dataset(path).to_batches(filter=most)),
        "scanner": lambda path: digest(ia.dataset(path).scanner(filter=most).to_batches()),
        "to_table": of_table(filter=few),
        "count_rows": lambda path: ia.dataset(path).count_rows(filter=most),
        "iter_batches": iterated,
        "add_indexes": added,
        "verify": lambda path: [str(found) for found in ia.verify(path)],
        "write": written,
        "write_table": table_written,
        "recover": recovered,
        "sql": lambda path: ia.sql(query, t=path).to_pylist(),
    }

    small = next(ia.dataset(path).to_batches()).slice(0, 100)
    for call in calls.values():  # imports what it needs
        pq.write_table(pa.Table.from_batches([small]), tiny)
        call(tiny)
    if limit != "None":
        ia.set_memory_limit(limit)
    tidy()
    before, answers = status("VmRSS"), {}
    for name, call in calls.items():
        given = path
        if name in ("add_indexes", "verify"):  # the indexes are verified as well
            given = copy
        if name == "add_indexes":
            shutil.copytree(path, copy) if os.path.isdir(path) else shutil.copy(path, copy)
        tidy()
        answers[name] = call(given), status("VmHWM") - before
    print(json.dumps(answers))
"""


def run(code, *arguments):
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)],
        capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip


def answers_of(folder, name, work, limit):
    ran = run(MEASURING + CALLS, folder / f"{name}.parquet", work, limit)
    assert ran.returncode == 0, ran.stderr[-3000:]
    return json.loads(ran.stdout)


@pytest.fixture(scope="module")
def unlimited(folder, tmp_path_factory):
    """The answers of calls without a limit, by file."""
    work = tmp_path_factory.mktemp("unlimited")
    return {name: answers_of(folder, name, work / name, None) for name in FILES}


@pytest.mark.parametrize(("limit", "name"), [*(("256MB", name) for name in FILES), ("1GB", "long")])
def test_calls_keep_the_limit_and_answer_as_without_one(folder, unlimited, tmp_path, limit, name):
    actual = answers_of(folder, name, tmp_path / "work", limit)
    expected = unlimited[name]
    most = {"256MB": 256e6, "1GB": 1e9}[limit]
    assert {call: answer for call, (answer, _) in actual.items()} == {
        call: answer for call, (answer, _) in expected.items()
    }
    # pyarrow's reader holds several batches
    room = dict.fromkeys(actual, most) | {"scanner": 1.5 * most}
    beyond = {call: peak // MIB for call, (_, peak) in actual.items() if peak > room[call]}
    assert not beyond, (beyond, {call: peak // MIB for call, (_, peak) in actual.items()})


def test_the_files_would_take_more(unlimited):
    """Otherwise the limit would prove nothing."""
    taken = {call for call, (_, peak) in unlimited["long"].items() if peak > 256e6}
    assert {"to_batches", "filtered", "iter_batches", "write"} <= taken, unlimited["long"]


KINDS = """
    path, work, *kinds = sys.argv[1:]

    def measure(name, call, *arguments):
        tidy()
        before = status("VmHWM")
        call(*arguments)
        print(name, status("VmHWM") - before)

    tiny = work + "/tiny.parquet"
    pq.write_table(ia.dataset(path).head(100), tiny)
    ia.add_indexes(tiny, kinds)  # imports what it needs
    ia.set_memory_limit("256MB")
    for kind in kinds:
        copy = shutil.copy(path, work)
        measure(kind, ia.add_indexes, copy, [kind])
        if "bloom" in kind:
            measure("verify", ia.verify, copy)
"""
KINDS_OF_TEXT = [
    "page_index",
    *(f"trace:{k}" for k in ["bloom", "lookup", "minmax", "ngram", "words"]),
]


def test_each_index_of_many_distinct_values_keeps_the_limit(tmp_path):
    """3,000,000 values in one row group. Each has a fingerprint and 14 trigrams."""
    numbers = np.random.default_rng(1).integers(0, 2**60, 3_000_000)
    table = pa.table({"trace": np.char.mod("%016x", numbers)})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=len(table), use_dictionary=False)
    (tmp_path / "work").mkdir()
    ran = run(MEASURING + KINDS, tmp_path / "a.parquet", tmp_path / "work", *KINDS_OF_TEXT)
    assert ran.returncode == 0, ran.stderr[-3000:]
    peaks = {kind: int(peak) // MIB for kind, peak in map(str.split, ran.stdout.splitlines())}
    assert peaks.keys() == {*KINDS_OF_TEXT, "verify"}
    assert max(peaks.values()) * MIB < 256e6, peaks


def test_written_row_groups_are_freed_at_once(tmp_path, monkeypatch):
    """One row group is in memory while the next batch is read, none while indexes are built."""
    rows, taken, compose = 1_000_000, [], parquet_writer.compose

    def batches():
        for number in range(6):
            taken.append(pa.total_allocated_bytes() - before)
            values = np.arange(number * rows, (number + 1) * rows)
            yield pa.record_batch([pa.array(values.tolist())], ["id"])

    def composed(*arguments):
        taken.append(pa.total_allocated_bytes() - before)
        return compose(*arguments)

    monkeypatch.setattr(parquet_writer, "compose", composed)
    before = pa.total_allocated_bytes()
    schema = pa.schema([("id", pa.int64())])
    ia.write_table(
        batches(), tmp_path / "a", schema=schema, indexes=["id:minmax"], row_group_size=rows
    )
    *reading, indexing = [size / (rows * 8) for size in taken]
    assert len(reading) == 6
    assert max(reading) < 1.75, reading
    assert indexing < 0.5, indexing


@pytest.fixture
def limited():
    ia.set_memory_limit("64MiB")
    yield
    ia.set_memory_limit(None)


@pytest.fixture
def path(tmp_path):
    ia.write_table(rows_of(40_000), tmp_path / "a.parquet", row_group_size=20_000)
    return tmp_path / "a.parquet"


@pytest.fixture(scope="module")
def large_value(tmp_path_factory):
    """A file of a few KB whose second row group holds one value of 200 MB."""
    path = tmp_path_factory.mktemp("large") / "large.parquet"
    sizes = [10, 200_000_000]
    with pq.ParquetWriter(path, pa.schema([("n", pa.int64()), ("v", pa.binary())]),
                          compression="zstd", write_statistics=False) as writer:  # fmt: skip
        for number, size in enumerate(sizes):
            offsets = pa.py_buffer(np.array([0, size], dtype=np.int32))
            buffers = [None, offsets, pa.py_buffer(bytes(size))]
            values = pa.Array.from_buffers(pa.binary(), 1, buffers)
            writer.write_table(pa.table({"n": [number], "v": values}))
    assert path.stat().st_size < 40_000
    return path


REFUSED = {
    "to_table": lambda path: ia.dataset(path).to_table(),
    "to_batches": lambda path: list(ia.dataset(path).to_batches()),
    "count_rows": lambda path: ia.dataset(path).count_rows(filter=pc.field("v") != b"x"),
    "read": lambda path: ia.ParquetFile(path).read(),
    "skipping": lambda path: ia.dataset(path, on_corrupt="skip").to_table(),
    "verify": lambda path: ia.verify(path),
    "add_indexes": lambda path: ia.add_indexes(path, ["v:lookup"], sidecar=True),
    "bloom": lambda path: ia.add_indexes(path, ["v:bloom"]),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_page_beyond_the_limit_is_refused_before_it_is_decoded(large_value, limited, name):
    before, allocated = large_value.read_bytes(), pa.total_allocated_bytes()
    pool = pa.default_memory_pool()
    with pytest.raises(ia.OutOfMemoryError, match=r"memory limit") as caught:
        REFUSED[name](large_value)
    where = caught.value.where
    assert (where.file, where.row_group, where.column) == (str(large_value), 1, "v")
    assert where.page is not None
    assert pool.bytes_allocated() < allocated + 50 * MIB
    assert large_value.read_bytes() == before


def test_columns_beside_a_large_value_are_read(large_value, limited):
    assert ia.dataset(large_value).to_table(columns=["n"])["n"].to_pylist() == [0, 1]
    assert ia.dataset(large_value).count_rows(filter=pc.field("n") > 0) == 1


@pytest.mark.parametrize("call", ["to_table", "head"])
def test_a_table_that_does_not_fit_is_refused(folder, call):
    data = ia.dataset(folder / "plain.parquet")
    options = {"memory_limit": "64MiB"}
    rows = (2 * GROUP_ROWS,) if call == "head" else ()
    with pytest.raises(ia.OutOfMemoryError, match="to_batches"):
        getattr(data, call)(*rows, **options)
    assert sum(b.num_rows for b in data.to_batches(**options)) == 2 * GROUP_ROWS


def test_a_limit_of_a_call_is_its_own(path):
    data = ia.dataset(path)
    inside = []
    for batch in data.to_batches(filter=pc.field("id") >= 0, memory_limit="100MB"):
        inside.append(ia.memory_limit())
        assert batch.num_rows
    assert set(inside) == {None}
    with time_limit(None, "", "100MB"), time_limit(5, "within"):
        assert ia.memory_limit() == 100_000_000
        with time_limit(None, "", "1GiB"):
            assert ia.memory_limit() == 2**30
        assert memory.share(10**9, 4) == 25_000_000
    assert ia.memory_limit() is None
    assert memory.share(10**9, 4) == 10**9


def test_small_limits_give_the_same_rows(path, limited):
    given = pq.read_table(path)
    assert ia.dataset(path).to_table() == given
    assert ia.ParquetFile(path).read() == given
    expected = pc.field("user") < 500_000
    assert ia.dataset(path).to_table(filter=expected) == given.filter(expected)
    assert ia.dataset(path).count_rows(filter=expected) == given.filter(expected).num_rows


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("256MB", 256_000_000), ("1GiB", 2**30), ("1.5 gb", 1_500_000_000), (2**28, 2**28),
        ("67108864", 2**26), ("100000 KB", 10**8), ("2TB", 2 * 10**12), (None, None),
    ],
)  # fmt: skip
def test_limits_are_written_as_in_duckdb(text, size):
    ia.set_memory_limit(text)
    assert ia.memory_limit() == size
    ia.set_memory_limit(None)


@pytest.mark.parametrize(
    ("wrong", "kind"),
    [
        ("256", ValueError), ("many MB", ValueError), ("-1GB", ValueError), (0, ValueError),
        ("1PB", ValueError), ("", ValueError), (True, TypeError), (1e9, TypeError),
        (b"1GB", TypeError),
    ],
)  # fmt: skip
def test_other_limits_are_refused(path, wrong, kind):
    with pytest.raises(kind, match="memory limit"):
        ia.set_memory_limit(wrong)
    with pytest.raises(kind, match="memory limit"):
        ia.dataset(path).to_table(memory_limit=wrong)
    assert ia.memory_limit() is None


def test_duckdb_is_given_its_share(limited):
    setting = "SELECT current_setting('memory_limit') AS most"
    assert ia.sql(setting)["most"].to_pylist() == ["32.0 MiB"]
    ia.set_memory_limit(None)
    assert ia.sql(setting)["most"].to_pylist() != ["32.0 MiB"]


def test_commands_take_a_limit(path, capsys):
    cli(["scan", str(path), "--count", "--memory-limit", "64MiB"], standalone_mode=False)
    assert capsys.readouterr().out.strip() == "40000"
    assert ia.memory_limit() is None
    file, out = str(path), str(path) + ".out"
    for command in (
        ["verify", file], ["index", "add", file, "id:bloom"], ["recover", file, out],
        ["write", file, out], ["scan", file],
    ):  # fmt: skip
        with pytest.raises(SystemExit):
            cli([*command, "--memory-limit", "1MB"])
        assert "at least 64MiB" in capsys.readouterr().err


NEAR_THE_END = """
    import resource, sys
    import pyarrow as pa
    import intarsia as ia
    from intarsia.memory import AllocationBudget
    ia.dataset
    pages = int(open("/proc/self/statm").read().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + 100 * 2**20,) * 2)
    room = AllocationBudget()
    room.take(60 * 2**20, "a page")
    try:
        room.take(20 * 2**20, "another")
    except ia.OutOfMemoryError as error:
        print("told", "another" in str(error))
    room.take(2**20, "a small one")
"""


def test_a_limit_of_the_address_space_counts():
    ran = run(NEAR_THE_END)
    assert (ran.stdout, ran.returncode) == ("told True\n", 0), ran.stderr
