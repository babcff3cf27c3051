"""What DuckDB alone can compute of a WHERE, ``ia.sql`` asks it by that WHERE's columns first."""

from __future__ import annotations

import shutil

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import intarsia as ia
from intarsia.engines import looked
from intarsia.engines.sql import _opened
from intarsia.predicate.query import scans_of
from intarsia.read import columns as read_columns
from intarsia.storage import FileSource

pytestmark = pytest.mark.usefixtures("by_pages")
SCHEMA = pa.schema(
    {
        "ts": pa.timestamp("us"),
        "I": pa.int64(),
        "s": pa.string(),
        "st": pa.struct({"a": pa.int64()}),
        "t1": pa.int64(),
    }
)
ASKED = {
    "SELECT * FROM t WHERE i % 3 = 1": ("i", None),
    "FROM t WHERE hamming(s, 'duck') = 1 AND i > 3": ("i s", None),
    "SELECT s FROM t AS o WHERE o.i + 1 > 3 ORDER BY s LIMIT 5": ("i", None),
    "SELECT s FROM t WHERE i + 1 > 3 LIMIT 5 OFFSET 2": ("i", 7),
    "SELECT s, count(*) FROM t WHERE i + 1 > 3 GROUP BY s HAVING count(*) > 2 LIMIT 3": ("i", None),
    "SELECT unnest([s]) FROM t WHERE i + 1 > 3 LIMIT 5": ("i", None),
    "SELECT DISTINCT s FROM t WHERE st.a + 1 > 3": ("st", None),
    "SELECT s FROM t WHERE (i + 1) > 3 -- why\n": ("i", None),
    "SELECT s FROM t WHERE i = (SELECT max(i + 1) FROM t)": ("i", None),
    "SELECT s FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.i = t.i)": ("i", None),
    "SELECT s FROM t WHERE i IN (SELECT i FROM u USING SAMPLE 5 ROWS)": ("i", None),
    "SELECT s FROM t WHERE random() < 0.5": ("", None),
    "SELECT i AS I, s FROM t WHERE i + 1 > 3 WINDOW w AS () QUALIFY true": ("i", None),
}
NOT_ASKED = """
SELECT * FROM t WHERE i > 3
SELECT * FROM t WHERE i + 1 > 3 FETCH FIRST 2 ROWS ONLY
SELECT s AS i FROM t WHERE i + 1 > 3
SELECT * FROM t WHERE i > 3 AND s LIKE 'a%'
SELECT * FROM t
SELECT s FROM t WHERE (SELECT len(w::VARCHAR) FROM (SELECT t.*) w) < 90
SELECT s FROM t WHERE i + 1 > 3 AND struct_pack(t.*) IS NOT NULL
SELECT i + 1 AS s FROM t WHERE s || 'a' = 'ba'
SELECT * FROM t WHERE t.i + 1 > 3 AND t = {}
SELECT * FROM t WHERE length(COLUMNS('s')) > 3
SELECT * FROM t AS o(i, ts) WHERE i + 1 > 3
SELECT * FROM t AS st WHERE st.a + 1 > 3
SELECT * FROM t, u WHERE t.i + 1 > 3
SELECT * FROM t JOIN u USING (i) WHERE t.i + 1 > 3
SELECT * FROM (SELECT * FROM t) WHERE i + 1 > 3
WITH c AS (SELECT 1) SELECT * FROM t WHERE i + 1 > (FROM c)
SELECT * FROM t WHERE i + 1 > 3 UNION ALL SELECT * FROM t
SELECT * FROM t WHERE i + 1 > 3 USING SAMPLE 5
SELECT * FROM t WHERE #1 + 1 > 3
EXPLAIN SELECT * FROM t WHERE i + 1 > 3
""".strip().splitlines()


def looks(query):
    found = scans_of(query, {"t": SCHEMA, "u": pa.schema({"i": pa.int64()})})
    return [scan.look for scan in found.scans if scan.look is not None]


@pytest.mark.parametrize(("query", "expected"), ASKED.items(), ids=ASKED)
def test_what_is_asked_first(query, expected):
    (look,) = looks(query)
    columns, limit = expected
    assert {path[0].lower() for path in look.paths} == {*columns.split()}
    assert look.limit == limit


@pytest.mark.parametrize("query", NOT_ASKED)
def test_what_a_where_alone_does_not_tell_is_not_asked(query):
    assert looks(query) == []


ROWS, PAGE = 160_000, 1000
FEW = pa.table({"n": [3, 70, 901]})


@pytest.fixture(scope="module")
def logs():
    random = np.random.default_rng(5)
    return pa.table(
        {
            "n": random.permutation(ROWS),
            "ts": pa.array(np.arange(ROWS) * 1_000_000, pa.timestamp("us")),
            "level": random.choice(["low", "high", None], ROWS).tolist(),
            "x": pa.array(random.random(ROWS), mask=random.random(ROWS) < 0.1),
            "name": [f"{n:x}" for n in random.integers(0, 2**60, ROWS)],
            "msg": [f"message {n:x}" * 3 for n in random.integers(0, 2**60, ROWS)],
            "day": np.arange(ROWS) * 4 // ROWS,
        }
    )


@pytest.fixture(scope="module")
def lake(logs, tmp_path_factory):
    """Four folders of a file each, of two row groups; rows in order."""
    folder = tmp_path_factory.mktemp("look")
    for day in range(4):
        at = folder / f"day={day}" / "a.parquet"
        at.parent.mkdir()
        part = logs.slice(day * ROWS // 4, ROWS // 4).drop_columns("day")
        ia.write_table(part, at, max_rows_per_page=PAGE, row_group_size=25_000)
    return folder


QUERIES = """
SELECT * FROM t WHERE n % 50000 = 7
SELECT * FROM t WHERE n % 50000 = 7 AND day % 2 = 1
SELECT * FROM t WHERE n % 5000 = 7 AND level = 'low' ORDER BY n DESC LIMIT 3
SELECT msg, name FROM t WHERE n // 2 = 4000 OR n * 2 = 6000 -- either
SELECT * FROM t AS "O" WHERE "O".n + 1 BETWEEN 3 AND 9
SELECT * FROM t AS "a ""b" WHERE "a ""b".n + 1 BETWEEN 3 AND 9;
SELECT (SELECT 1 WHERE true) AS o, name FROM t WHERE n % 50000 = 7 LIMIT 1000000
SELECT name FROM t WHERE n % 50000 = 7 AND ts < now() AND md5(name) <> ''
SELECT * FROM t WHERE epoch(ts) < 5 OR isodow(ts) = 9
SELECT * FROM t WHERE x > (SELECT max(x) * 0.9999 FROM t)
SELECT * FROM t WHERE n IN (SELECT n + 1 FROM t WHERE n < 5) AND n + 1 > 0
SELECT * FROM t WHERE n + 0 = (SELECT min(n) FROM t AS u WHERE u.n > t.n AND u.n < 5 AND t.n < 9)
SELECT day, count(*) AS c, max(msg) AS m FROM t WHERE n % 4000 = 0 GROUP BY day ORDER BY day
SELECT level, max(msg || name) AS m FROM t WHERE n % 4000 = 0 GROUP BY level HAVING level <> 'low'
SELECT DISTINCT level, left(msg, 4) AS m FROM t WHERE n % 4000 = 0
SELECT *, row_number() OVER (ORDER BY n) AS r FROM t WHERE n % 4000 = 0 QUALIFY r < 3
SELECT *, sum(n) OVER w AS s FROM t WHERE n % 9000 = 0 WINDOW w AS (ORDER BY n)
SELECT * FROM t WHERE CASE WHEN n = 5 THEN true WHEN n = 77 THEN NULL ELSE false END
SELECT * FROM t WHERE levenshtein(level, 'lo') = 1 AND n % 3000 = 1
SELECT * FROM t WHERE ts::TIME = TIME '00:00:07'
SELECT name FROM t WHERE EXISTS (SELECT 1 FROM few WHERE few.n = t.n AND few.n % 2 = 1)
SELECT name FROM t WHERE n IN (SELECT n + 1 FROM few) OR n = (SELECT count(*) FROM few)
SELECT unnest([n, n]) AS u, name FROM t WHERE n % 40000 = 1
SELECT * FROM t WHERE n % 1000000 = 999999
SELECT (SELECT count(*) FROM t AS u WHERE u.n < t.n) AS c, msg FROM t WHERE n % 90000 = 5
SELECT msg FROM t WHERE n % 20000 = 5 UNION ALL SELECT name FROM t WHERE n % 20000 = 6
""".strip().splitlines()


def rows_of(table):
    return sorted(map(repr, table.to_pylist()))


@pytest.mark.parametrize("query", QUERIES)
@pytest.mark.usefixtures("at_once")
def test_answers_are_duckdbs(query, logs, lake):
    with duckdb.connect() as connection:
        connection.register("t", logs)
        connection.register("few", FEW)
        expected = connection.sql(query).to_arrow_table()
    found = ia.sql(query, t=lake, few=FEW)
    assert found.schema.names == expected.schema.names
    assert rows_of(found) == rows_of(expected)


@pytest.mark.parametrize(
    ("query", "parameters"),
    [
        ("SELECT ?, name FROM t WHERE n % ? = ?", ["a", 50_000, 7]),
        ("SELECT $2, name FROM t WHERE n % $1 = $3", [50_000, "a", 7]),
        ("SELECT $b, name FROM t WHERE n % $a = $C", {"a": 50_000, "b": "a", "C": 7}),
    ],
)
@pytest.mark.usefixtures("at_once")
def test_parameters_of_the_where_are_given(query, parameters, lake):
    assert ia.sql(query, parameters, t=lake).num_rows == 4


FOUND = {  # and the share of the bytes of all columns that is read, about
    "SELECT * FROM t WHERE n % 50000 = 7": 0.15,
    "SELECT * FROM t WHERE n % 50000 = 7 AND day % 2 = 1": 0.13,
    "SELECT n, name, msg FROM t WHERE n % 50000 = 7 ORDER BY msg": 0.14,
    "SELECT n, name, msg FROM t WHERE n % 4000 = 7 AND n + 1 < 0": 0.1,
}
NOT_FOUND = (
    "SELECT * FROM t WHERE n % 3 = 1",  # too many
    "SELECT name, n FROM t WHERE md5(msg) < '0001'",  # of the largest column
    "SELECT * FROM t WHERE n % 99 = 7 AND ts < '1970-01-01 05:00:00'",  # few are left to look at
)


@pytest.fixture
def found(monkeypatch):
    """What ``rows_found`` gives."""
    found, rows_found = [], looked.rows_found

    def watched(*args):
        found.append(rows_found(*args))
        return found[-1]

    monkeypatch.setattr("intarsia.engines.sql.rows_found", watched)
    return found


@pytest.mark.parametrize(("query", "share"), FOUND.items(), ids=FOUND)
def test_only_what_is_found_is_read(query, share, lake, found, monkeypatch):
    sizes, read = [], FileSource.read

    def counted(source, ranges):
        sizes.extend(length for _, length in ranges)
        return read(source, ranges)

    data = ia.dataset(lake)
    total = sum(data._cache.get(path).source.size for path in data.files)
    monkeypatch.setattr(FileSource, "read", counted)
    answer = ia.sql(query, t=data)
    (left,) = found
    assert sum(part.rows.num_rows for part in left._parts_left) == answer.num_rows
    assert sum(sizes) < share * total


def test_no_more_is_found_than_a_limit_asks_for(lake, found):
    assert ia.sql("SELECT * FROM t WHERE n % 4000 = 7 LIMIT 2 OFFSET 1", t=lake).num_rows == 2
    (left,) = found
    assert sum(part.rows.num_rows for part in left._parts_left) == 3


@pytest.mark.parametrize("query", NOT_FOUND)
def test_what_does_not_pay_reads_all(query, logs, lake, found):
    answer = ia.sql(query, t=lake)
    with duckdb.connect() as connection:
        connection.register("t", logs)
        assert rows_of(answer) == rows_of(connection.sql(query).to_arrow_table())
    assert found == [None]


def test_a_where_that_fails_fails_as_it_does(lake):
    with pytest.raises(duckdb.ConversionException, match=r"INT8(.|\n)*WHERE n::TINYINT = 3"):
        ia.sql("SELECT * FROM t WHERE n::TINYINT = 3", t=lake)
    query = "SELECT name FROM t WHERE n::TINYINT = 3 AND n < 100"
    assert ia.sql(query, t=lake).num_rows == 1


@pytest.mark.usefixtures("at_once")
def test_what_a_where_chooses_is_chosen_once(lake, found):
    ids = pa.table({"n": range(ROWS)})
    for _ in range(3):
        query = "SELECT count(DISTINCT n) AS c, max(msg) AS m FROM t WHERE n IN (FROM ids {})"
        for some in ("USING SAMPLE 5 ROWS", "SELECT any_value(n) GROUP BY n % 5"):
            (answer,) = ia.sql(query.format(some), t=lake, ids=ids).to_pylist()
            assert answer["c"] == 5
    query = "SELECT count(*) AS c, count(msg) AS m FROM t WHERE random() < 0.01"
    (answer,) = ia.sql(query, t=lake).to_pylist()
    assert 1_000 < answer["c"] == answer["m"] < 2_200
    assert None not in found


def test_small_files_and_those_of_one_row(tmp_path, monkeypatch):
    monkeypatch.setattr(looked, "_LEAST_ROWS", 10)
    for i in range(60):
        size = 1 if i % 7 == 0 else 40
        text = [f"{i}-{j}" * 20 for j in range(size)]
        table = pa.table({"n": pa.array(range(i * 100, i * 100 + size)), "text": text})
        pq.write_table(table, tmp_path / f"{i:03}.parquet")
    data = ia.dataset(tmp_path)
    query = "SELECT * FROM t WHERE n % 700 = 0 OR n % 900 = 39"
    everything = data.to_table()
    with duckdb.connect() as connection:
        connection.register("t", everything)
        expected = connection.sql(query).to_arrow_table()
    assert ia.sql(query, t=data).to_pylist() == expected.to_pylist()
    assert expected.num_rows > 10


def test_files_that_folders_and_catalogs_leave_out_are_not_opened(lake, tmp_path):
    shutil.copytree(lake, tmp_path / "lake")
    torn = tmp_path / "lake" / "day=3" / "a.parquet"
    query = "SELECT * FROM t WHERE n % 50000 = 7 AND day < 3 AND ts < '1970-01-01 20:00:00'"
    expected = rows_of(ia.sql(query, t=tmp_path / "lake"))
    data = ia.dataset(tmp_path / "lake")
    torn.write_bytes(b"none")
    assert rows_of(ia.sql(query, t=data)) == expected != []
    shutil.copy(lake / "day=3" / "a.parquet", torn)
    ia.build_catalog(tmp_path / "lake")
    data = ia.dataset(tmp_path / "lake")
    query = "SELECT * FROM t WHERE n % 50000 = 7 AND ts < '1970-01-01 20:00:00'"
    assert rows_of(ia.sql(query, t=data)) != []
    assert data._cache._find(data.files[3]) is None


def test_a_file_that_is_replaced_meanwhile_is_read_as_it_is(logs, tmp_path, monkeypatch):
    path = tmp_path / "a.parquet"
    ia.write_table(logs, path, max_rows_per_page=PAGE)
    later = logs.set_column(0, "n", pc.add(logs["n"], 1))
    data, asked = ia.dataset(path), looked._asked

    def replaced(*args):
        found = asked(*args)
        ia.write_table(later, path, max_rows_per_page=PAGE)
        return found

    monkeypatch.setattr(looked, "_asked", replaced)
    found = ia.sql("SELECT * FROM t WHERE n % 50000 = 7", t=data)
    assert found["n"].to_pylist() == [n for n in later["n"].to_pylist() if n % 50_000 == 7]


def test_damaged_pages_are_told_of(logs, tmp_path, found):
    path = tmp_path / "a.parquet"
    ia.write_table(logs, path, max_rows_per_page=PAGE, write_page_checksum=True)
    damaged = bytearray(path.read_bytes())
    page = ia.ParquetFile(path).pages(0, "n")[3]
    damaged[page.offset + page.header_size + 20] ^= 0xFF
    path.write_bytes(damaged)
    query = "SELECT * FROM t WHERE n % 50000 = 7"
    with pytest.raises(ia.FormatError, match=r"column n.*page 3"):
        ia.sql(query, t=ia.dataset(path, page_checksum_verification=True))
    found.clear()
    with pytest.warns(ia.CorruptDataWarning):
        answer = ia.sql(query, t=ia.dataset(path, on_corrupt="skip"))
    assert found == [None]
    kept = [*logs["n"].to_pylist()[: 3 * PAGE], *logs["n"].to_pylist()[4 * PAGE :]]
    assert answer["n"].to_pylist() == [n for n in kept if n % 50_000 == 7]


@pytest.mark.parametrize("name", ["__row_number", "__Row_Number", "__INTARSIA_FILE"])
def test_columns_that_are_called_as_places_are(logs, tmp_path, name, found):
    table = logs.select(["n", "msg"]).append_column(name, pc.cast(logs["n"], pa.int32()))
    ia.write_table(table, tmp_path / "a.parquet", max_rows_per_page=PAGE)
    answer = ia.sql("SELECT * FROM t WHERE n % 50000 = 7", t=tmp_path)
    assert sorted(answer["n"].to_pylist()) == [7, 50_007, 100_007, 150_007]
    assert answer.schema.names == ["n", "msg", name]
    assert found == [None]


def test_columns_that_take_no_bytes(tmp_path):
    for year in range(40):
        (tmp_path / f"year={2000 + year}").mkdir()
        ia.write_table(pa.table({"x": range(4000)}), tmp_path / f"year={2000 + year}" / "a.parquet")
    schema = pa.schema({"year": pa.int32(), "none": pa.int64()})
    data = ia.dataset(tmp_path, schema=schema, partitioning="hive")
    query = "SELECT year FROM t WHERE CASE WHEN year % 40 = 5 THEN true ELSE none = 3 END"
    assert ia.sql(query, t=data)["year"].to_pylist() == [2005] * 4000


def test_the_rows_that_were_found_are_all_that_is_asked_for(logs, lake):
    data = _opened(lake)
    (scan,) = scans_of("SELECT * FROM t WHERE n % 50000 = 7", {"t": data.schema}).scans
    with duckdb.connect() as connection:
        found = looked.rows_found(connection, data, scan.look, scan.columns, (), {})
    assert found is not None
    assert sorted(found.to_table(["n"])["n"].to_pylist()) == [7, 50_007, 100_007, 150_007]
    assert found.to_table(["n"], filter="n < 60000").num_rows == 2
    assert found.filter("n < 60000").to_table(["n"]).num_rows == 2
    assert data.at([]).to_table(["n"]).num_rows == 0


def test_many_files_are_not_opened_for_it(tmp_path, found):
    for i in range(101):
        path = tmp_path / f"day={i}" / "a.parquet"
        path.parent.mkdir()
        ia.write_table(pa.table({"n": range(1000), "pad": ["x" * 50] * 1000}), path)
    data = ia.dataset(tmp_path)
    assert ia.sql("SELECT pad FROM t WHERE n % 1000 = 7 AND day = 3", t=data).num_rows == 1
    opened = [path for path in data.files if data._cache._find(path) is not None]
    # The first file's schema was compared with the folders.
    assert [path.rpartition("/day=")[2] for path in opened] == ["0/a.parquet", "3/a.parquet"]
    assert ia.sql("SELECT pad FROM t WHERE n % 1000 = 7", t=data).num_rows == 101
    assert found == [None, None]


def test_of_structs_the_fields_in_the_where_are_looked_at_first(tmp_path, monkeypatch):
    rows, rng = 80_000, np.random.default_rng(0)
    fields = {
        "id": pa.array(range(rows), pa.int32()),
        "name": pa.array([rng.bytes(20).hex() for _ in range(rows)]),
        "pad": pa.array([f"{i * 104729 % rows:06}" * 8 for i in range(rows)]),
    }
    table = pa.table({"u": pa.StructArray.from_arrays([*fields.values()], [*fields])})
    path = tmp_path / "a.parquet"
    pq.write_table(table, path, write_page_index=True, max_rows_per_page=2_000, row_group_size=rows)
    seen = []

    def read_rows(file, roots, rows, **options):
        names = [file.schema.leaves[leaf].name for root in roots for leaf in root.leaves]
        seen.append((names, rows.num_rows))
        return read(file, roots, rows, **options)

    read = read_columns.read_rows
    monkeypatch.setattr(read_columns, "read_rows", read_rows)
    query = "SELECT u.name FROM t WHERE hash(u.id) % 40000 = 7 ORDER BY ALL"
    found = ia.sql(query, t=path)
    con = duckdb.connect()
    con.register("t", table)
    assert found.to_pylist() == con.sql(query).to_arrow_table().to_pylist()
    first, *others = seen
    assert first == (["u.id"], rows)
    assert {name for names, _ in others for name in names} <= {"u.id", "u.name"}
    assert sum(count for names, count in others) == found.num_rows > 0
