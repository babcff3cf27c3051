"""``ia.delta``: tables of every shape, as deltalake's own engine reads them."""

import datetime
import itertools
import json
import pickle
import re
import shutil
import time
import urllib.parse
from pathlib import Path

import delta_log
import deltalake
import pyarrow as pa
import pyarrow.dataset as pads
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from deltalake import DeltaTable, QueryBuilder

import intarsia as ia
from intarsia.cli.command_line import cli
from intarsia.tables.delta import READER_FEATURES

ROWS = 900
DAY = datetime.date(2024, 2, 27)


def rows_of(start, stop):
    """Rows of a table, by their numbers."""
    numbers = range(start, stop)
    return pa.table(
        {
            "id": pa.array(numbers, pa.int32()),
            "key": [f"k{n * 7919 % 3000:05}" for n in numbers],
            "day": pa.array(
                [None if n % 9 == 4 else DAY + datetime.timedelta(n % 3) for n in numbers],
                pa.date32(),
            ),
            "name": ["New York" if n % 2 else "a/b 50%=x" for n in numbers],
            "at": pa.array(
                [datetime.datetime(2024, 1, 1, n % 24, tzinfo=datetime.UTC) for n in numbers],
                pa.timestamp("us", "UTC"),
            ),
            "price": pa.array([None if n % 50 == 0 else n / 7 for n in numbers], pa.float64()),
            "s": [{"x": n, "tags": [{"t": f"t{n % 5}"}]} for n in numbers],
        }
    )


def written(path, partitions, mode, **configuration):
    """A table of three files for each partition."""
    settings = {"delta.columnMapping.mode": mode, **configuration}
    for start in range(0, ROWS, 300):
        deltalake.write_deltalake(
            path,
            rows_of(start, start + 300),
            partition_by=partitions or None,
            mode="append",
            configuration=settings if start == 0 else None,
        )


def plain(path):
    written(path, [], "none")


def without_the_feature(path):
    """A mode of mapping that the table's protocol does not name has no effect."""
    written(path, ["name"], "name", **{"delta.enableDeletionVectors": "true"})


def partitioned(path):
    written(path, ["day", "name"], "none")


def mapped(path):
    written(path, ["day"], "name")


def mapped_by_id(path):
    written(path, ["name"], "id")


def vectors(path):
    written(path, ["name"], "none", **{"delta.enableDeletionVectors": "true"})
    files = [one["add"]["path"] for one in delta_log.actions(path) if "add" in one]
    delta_log.delete_rows(path, files[0], [*range(0, 150, 3)])
    delta_log.delete_rows(path, files[1], [0, 1, 2, 149])
    delta_log.delete_rows(path, files[1], [0, 1, 2, 3, 149])
    delta_log.delete_rows(path, files[2], [*range(150)])


def mapped_vectors(path):
    written(path, ["name"], "name")
    files = [one["add"]["path"] for one in delta_log.actions(path) if "add" in one]
    features = ["columnMapping", "deletionVectors"]
    settings = {"delta.columnMapping.maxColumnId": "100", "delta.enableDeletionVectors": "true"}
    delta_log.change_schema(path, _renamed, features, **settings)
    delta_log.delete_rows(path, files[3], [*range(0, 150, 2)])


def _renamed(fields):
    """Renames columns, drops one and gives its name to a new one, and swaps two names."""
    by_name = {one["name"]: one for one in fields}
    by_name["id"]["name"], by_name["at"]["name"] = "at", "id"
    by_name["s"]["type"]["fields"][0]["name"] = "y"
    fields.remove(by_name["price"])
    ids = {"delta.columnMapping.id": 99, "delta.columnMapping.physicalName": "col-new"}
    fields.insert(0, {"name": "price", "type": "string", "nullable": True, "metadata": ids})


def evolved(path):
    written(path, ["name"], "none")
    wider = rows_of(ROWS, ROWS + 100).append_column("note", pa.array(["x", None] * 50))
    deltalake.write_deltalake(
        path, wider.drop_columns(["price"]), mode="append", schema_mode="merge"
    )
    DeltaTable(path).delete("id % 10 = 3")
    DeltaTable(path).update(predicate="id = 7", updates={"key": "'updated'"})


def compacted(path):
    partitioned(path)
    DeltaTable(path).optimize.compact()
    DeltaTable(path).create_checkpoint()


def empty(path):
    written(path, [], "none")
    DeltaTable(path).delete()


SHAPES = [plain, without_the_feature, partitioned, mapped, mapped_by_id, vectors, mapped_vectors]
SHAPES += [evolved, compacted, empty]
CASES = [
    *itertools.product(SHAPES, ["no index", "embedded"]),
    *itertools.product([mapped_vectors, partitioned], ["sidecars"]),
]


@pytest.fixture(params=CASES, scope="module", ids=lambda one: f"{one[0].__name__}, {one[1]}")
def path(request, tmp_path_factory):
    """A table's folder, the files of which have indexes or not."""
    shape, indexing = request.param
    path = str(tmp_path_factory.mktemp("tables") / "a table of 50%")
    shape(path)
    if indexing != "no index" and shape is not empty:
        y, number = ("y", "at") if shape is mapped_vectors else ("x", "id")
        indexes = ["lookup(key, granule_rows=50)", f"minmax(s.{y})", f"minmax({number})"]
        if shape is not evolved:  # files that deltalake rewrote have string views
            indexes.append("lookup(lower(key), granule_rows=50)")
        ia.add_indexes(ia.delta(path), indexes, sidecar=indexing == "sidecars")
    return path


def in_order(table, schema):
    """The columns of ``schema``, in its types, with the rows in the order of their keys."""
    rows = pa.table(table).select(schema.names).to_pylist()  # pyarrow has no cast of all views
    return pa.Table.from_pylist(sorted(rows, key=lambda row: row["key"]), schema)


def test_all_rows_are_those_of_deltalake(path):
    data, table = ia.delta(path), DeltaTable(path)
    expected = in_order(table.scan(), data.schema)
    assert in_order(data.to_table(), data.schema) == expected
    assert data.count_rows() == expected.num_rows
    assert in_order(pa.Table.from_batches(data.to_batches(), data.schema), data.schema) == expected
    assert data.schema == pa.schema(table.schema().to_arrow()).remove_metadata()
    assert in_order(ia.delta(table).to_table(), data.schema) == expected
    assert in_order(pickle.loads(pickle.dumps(data)).to_table(), data.schema) == expected


CONDITIONS = [
    "key = 'k01919'",
    "key IN ('k01919', 'k00500', 'k01699', 'updated', 'k00919')",
    "lower(key) = 'k00919'",
    "price > 100",
    "price IS NULL",
    "NOT (price < 50)",
    "day = DATE '2024-02-28' AND name = 'New York'",
    "day IS NULL",
    "name = 'a/b 50%=x' AND key < 'k01000'",
    "id < 40",
    "id IS NOT NULL AND key LIKE 'k001%'",
]


@pytest.mark.parametrize("condition", CONDITIONS)
def test_filters_give_the_rows_of_deltalake(condition, path):
    data, table = ia.delta(path), DeltaTable(path)
    if pa.types.is_string(data.schema.field("price").type):
        condition = condition.replace("price > 100", "price > 'a'").replace(
            "price < 50", "price < 'a'"
        )
    if pa.types.is_timestamp(data.schema.field("id").type):
        condition = condition.replace("id < 40", "id < TIMESTAMP '2024-01-01 12:00:00'")
    expected = in_order(table.scan(predicate=condition), data.schema)
    assert in_order(data.to_table(filter=condition), data.schema) == expected
    assert data.count_rows(condition) == expected.num_rows
    some = in_order(data.to_table(["key", "name"], condition), pa.schema({"key": pa.string()}))
    assert some == expected.select(["key"])
    first = data.head(5, filter=condition)
    assert first.num_rows == min(5, expected.num_rows)
    query = f"SELECT key, s FROM t WHERE {condition}"
    schema = pa.schema([data.schema.field("key"), data.schema.field("s")])
    assert in_order(ia.sql(query, t=data), schema) == expected.select(["key", "s"])


def test_rows_are_taken_by_number(path):
    data = ia.delta(path)
    every = data.to_table()
    numbers = [n for n in (5, 0, 77, 640, 5) if n < every.num_rows]
    assert data.take(numbers) == every.take(pa.array(numbers, pa.int64()))
    with pytest.raises(IndexError):
        data.take([every.num_rows])


def test_engines_give_the_rows_of_deltalake(path):
    data, table = ia.delta(path), DeltaTable(path)
    theirs = QueryBuilder().register("t", table)
    for query in (
        "SELECT name, count(*) AS n, max(key) AS k FROM t GROUP BY name ORDER BY name",
        "SELECT count(*) AS n, count(price) AS p, min(day) AS d FROM t WHERE key > 'k01'",
        "SELECT key FROM t ORDER BY key DESC LIMIT 4",
    ):
        expected = pa.table(theirs.execute(query).read_all())
        actual = ia.sql(query, t=data)
        assert actual.to_pylist() == expected.to_pylist(), query
    frame = ia.polars.scan(data).select("key", "name").collect().to_arrow()
    schema = pa.schema([data.schema.field("key"), data.schema.field("name")])
    assert in_order(frame, schema) == in_order(table.scan(["key", "name"]), schema)


def test_indexes_are_used_under_the_names_of_the_table(path, request):
    data = ia.delta(path)
    shape, indexing = request.node.callspec.params["path"]
    if indexing == "no index" or shape is empty:
        pytest.skip("the files have no indexes")
    for file in data.files:
        sections = data.scan_source.cache.as_opened(file).sections
        assert all(map(sections.resolved, sections.entries))
        expected = {"key:lookup"} if shape is evolved else {"key:lookup", "lower(key):lookup"}
        assert {entry.name for entry in sections.entries} >= expected
    (report, *_) = ia.list_indexes(data)
    assert {entry.name for entry in report.entries} >= expected


# --- versions -----------------------------------------------------------------------------------


@pytest.fixture
def versions(tmp_path):
    """A table of three versions."""
    path = str(tmp_path / "table")
    plain(path)
    return path


def test_each_version_is_a_data_set_of_its_own(versions):
    for version in range(3):
        data = ia.delta(versions, version=version)
        assert data.count_rows() == 300 * (version + 1)
        assert f"version {version}" in repr(data)
        assert ia.delta(versions, version=str(version)).files == data.files
    assert ia.delta(DeltaTable(versions, version=1)).count_rows() == 600
    assert ia.delta(DeltaTable(versions, version=1), version=0).count_rows() == 300


def test_a_time_is_that_of_the_version_then(versions):
    log = Path(versions, "_delta_log")
    stamps = [
        one["commitInfo"]["timestamp"] for one in delta_log.actions(versions) if "commitInfo" in one
    ]
    assert len(stamps) == len([*log.glob("*.json")])
    for version, stamp in enumerate(stamps):
        when = datetime.datetime.fromtimestamp(stamp / 1000, datetime.UTC)
        expected = DeltaTable(versions)
        expected.load_as_version(when)
        for given in (when, when.isoformat()):
            assert ia.delta(versions, version=given).count_rows() == expected.count()
        assert expected.version() <= version
    tomorrow = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=1)
    for given in (f"{tomorrow:%Y-%m-%d}", f"{tomorrow:%Y-%m-%d %H:%M:%S}"):
        assert ia.delta(versions, version=given).count_rows() == DeltaTable(versions).count()


def test_a_version_that_is_absent_is_an_error(versions, tmp_path):
    with pytest.raises(ia.PathError, match="no Delta table at version 9 can be opened"):
        ia.delta(versions, version=9)
    with pytest.raises(ia.PathError, match="no Delta table at version -1 can be opened"):
        ia.delta(versions, version=-1)
    with pytest.raises(ValueError, match="not 'yesterday'"):
        ia.delta(versions, version="yesterday")
    with pytest.raises(ia.PathError, match="no Delta table can be opened"):
        ia.delta(tmp_path)


def test_a_data_set_stays_at_its_version(versions):
    data = ia.delta(versions)
    DeltaTable(versions).delete("id < 500")
    assert data.count_rows("id < 500") == 500
    assert ia.delta(versions).count_rows("id < 500") == 0


def test_a_file_that_a_vacuum_removed_is_named_with_the_version(versions):
    data = ia.delta(versions)
    DeltaTable(versions).delete("id >= 0")
    time.sleep(0.01)
    DeltaTable(versions).vacuum(0, dry_run=False, enforce_retention_duration=False)
    assert not Path(data.files[0]).exists()
    with pytest.raises(ia.PathError) as error:
        data.to_table(filter="id = 3")
    notes = " ".join(error.value.__notes__)
    assert "Delta table" in notes
    assert "version 2" in notes
    assert "vacuum" in notes


# --- what is refused ----------------------------------------------------------------------------


def test_a_folder_that_is_read_as_plain_files_points_to_delta(versions):
    with pytest.raises(ia.PathError, match=r"ia\.delta"):
        ia.dataset(versions)


def test_unknown_features_are_named(versions):
    def add_variant(fields):
        fields.append({"name": "v", "type": "variant", "nullable": True, "metadata": {}})

    delta_log.change_schema(versions, lambda fields: None, ["variantType"])
    assert ia.delta(versions).count_rows() == ROWS  # no column is one
    delta_log.change_schema(versions, add_variant)
    with pytest.raises(ia.UnsupportedError, match="variantType"):
        ia.delta(versions)


def test_pyarrows_own_scanner_columns_are_refused(tmp_path):
    path = str(tmp_path / "table")
    vectors(path)
    with pytest.raises(ia.PredicateError, match="Delta table"):
        ia.delta(path).to_table(["__fragment_index"])


@pytest.mark.parametrize("shape", [vectors, mapped])
def test_pyarrows_own_scans_are_refused(shape, tmp_path):
    path = str(tmp_path / "table")
    shape(path)
    data = ia.delta(path)
    scans = [
        lambda data: pads.Scanner.from_dataset(data).to_table(),
        lambda data: pads.dataset([data]).to_table(),
        lambda data: next(data.get_fragments()).pyarrow_fragment.to_table(),
    ]
    for copy in (data, pickle.loads(pickle.dumps(data)), data.with_options(reader="pages")):
        for scan in scans:
            with pytest.raises(ia.UnsupportedError, match="Delta table"):
                scan(copy)
        fragments = pickle.loads(pickle.dumps(list(copy.get_fragments())))
        assert sum(one.count_rows() for one in fragments) == copy.count_rows()
        assert sum(one.to_table().num_rows for one in fragments) == copy.count_rows()


def test_pyarrows_own_scans_read_tables_that_need_nothing_else(versions):
    assert pads.Scanner.from_dataset(ia.delta(versions)).to_table().num_rows == ROWS


def test_widened_types_are_cast(tmp_path):
    """deltalake's own engine refuses them."""
    path = str(tmp_path / "table")
    plain(path)

    def widen(fields):
        fields[0]["type"] = "long"
        fields[0]["metadata"]["delta.typeChanges"] = [{"fromType": "integer", "toType": "long"}]

    delta_log.change_schema(path, widen, ["typeWidening"])
    data = ia.delta(path)
    assert data.schema.field("id").type == pa.int64()
    ids = data.to_table(["id"], "id >= 890")["id"].to_pylist()
    assert sorted(ids) == [*range(890, 900)]


def test_timestamps_of_int96_may_be_of_any_year(tmp_path):
    """Spark writes INT96 by default, and nanoseconds begin in 1677."""
    path = str(tmp_path)
    times = [datetime.datetime(year, 1, 2, 3, 4, 5, 678901) for year in (1600, 2024, 9999)]
    column = pa.array(times, pa.timestamp("us", "UTC"))
    deltalake.write_deltalake(path, pa.table({"id": [1, 2, 3], "ts": column}))
    (file,) = ia.delta(path).files
    pq.write_table(pq.read_table(file), file, use_deprecated_int96_timestamps=True)
    data = ia.delta(path)
    assert data.to_table()["ts"].combine_chunks() == column
    for condition, ids in {
        "ts < TIMESTAMPTZ '1700-01-01 00:00:00+00'": [1],
        "ts > TIMESTAMPTZ '2100-01-01 00:00:00+00'": [3],
    }.items():
        assert data.to_table(["id"], condition)["id"].to_pylist() == ids
        assert ia.sql(f"SELECT id FROM t WHERE {condition}", t=data)["id"].to_pylist() == ids
    assert ia.sql("SELECT ts FROM t", t=data)["ts"].cast(column.type).combine_chunks() == column


def test_a_table_that_was_moved_is_read_where_it_is(versions, tmp_path):
    shutil.move(versions, tmp_path / "moved")
    assert ia.delta(tmp_path / "moved").count_rows() == ROWS


# --- the other functions ------------------------------------------------------------------------


@pytest.fixture(params=[plain, mapped, mapped_vectors])
def kept_indexed(request, tmp_path):
    """A table with a policy, whose files follow it."""
    path = str(tmp_path / "table")
    request.param(path)
    ia.add_indexes(ia.delta(path), ["lookup(key, granule_rows=50)"], keep=True)
    return path


def test_maintain_adds_what_files_of_other_writers_lack(kept_indexed):
    assert ia.maintain(ia.delta(kept_indexed)).changed == ()
    table = DeltaTable(kept_indexed)
    more = pa.table(table.scan()).slice(0, 10)
    more = pa.Table.from_pylist(more.to_pylist(), pa.schema(table.schema().to_arrow()))
    deltalake.write_deltalake(kept_indexed, more, mode="append")
    data = ia.delta(kept_indexed)
    before = ia.status(data)
    assert "Delta table" in before.path
    assert before.coverage("lookup(key, granule_rows=50)").share < 1
    expected = ia.maintain(data, dry_run=True).changed
    assert expected
    assert ia.maintain(data).changed == expected
    after = ia.status(ia.delta(kept_indexed))
    assert after.coverage("lookup(key, granule_rows=50)").share == 1
    assert {one.name for one in after.indexes} >= {"key:lookup"}
    assert in_order(ia.delta(kept_indexed).to_table(), data.schema) == in_order(
        DeltaTable(kept_indexed).scan(), data.schema
    )


def test_indexes_are_advised_and_dropped_by_their_names_in_the_table(kept_indexed):
    data = ia.delta(kept_indexed)
    assert [one.dropped for one in ia.drop_indexes(data, "key:lookup")] == [("key:lookup",)] * len(
        data.files
    )
    data = ia.delta(kept_indexed)
    advice = ia.advise(data, ["key = 'k01919'", "s IS NULL"])
    assert advice.filters[0].total > 0
    assert not ia.status(data).coverage("lookup(key)").files


def test_savings_are_counted_in_the_folder_of_the_table(tmp_path):
    path = str(tmp_path / "table")
    plain(path)
    ia.add_indexes(ia.delta(path), ["lookup(key, granule_rows=50)"])
    ia.usage.enable()
    try:
        assert ia.delta(path).count_rows("key = 'k01919'") == 1
    finally:
        ia.usage.disable()
    used = ia.status(ia.delta(path)).usage
    assert "key:lookup" in {one.name for one in used.indexes}
    assert ia.advise(ia.delta(path), ["key = 'k01919'"]).usage == used


def test_a_policy_is_of_one_folder(versions):
    files = ia.dataset(ia.delta(versions).files)
    with pytest.raises(ia.PathError, match="a policy is of one folder"):
        ia.maintain(files)
    reports = ia.add_indexes(files, ["lookup(key)"])
    assert len(reports) == len(files.files)
    assert ia.status(files).coverage("key:lookup").share == 1


@pytest.mark.parametrize("shape", [partitioned, mapped])
def test_no_index_is_added_to_a_column_of_partitions(shape, tmp_path):
    path = str(tmp_path / "table")
    shape(path)
    with pytest.raises(ia.IndexSpecError, match="'day' has one value in each file, and needs no"):
        ia.add_indexes(ia.delta(path), ["lookup(day)"])
    with pytest.raises(ia.IndexSpecError, match="column 'dya' is not there"):
        ia.add_indexes(ia.delta(path), ["lookup(dya)"])


def test_values_of_partitions_are_those_of_the_log(tmp_path):
    """Files may lie in any folder, as in tables with random prefixes of files."""
    path = tmp_path / "table"
    deltalake.write_deltalake(str(path), rows_of(0, 20), partition_by=["name"])
    log = path / "_delta_log" / f"{0:020}.json"
    actions = delta_log.actions(path)
    for number, action in enumerate(one["add"] for one in actions if "add" in one):
        old = path / urllib.parse.unquote(action["path"])
        action["path"] = f"name=New York/{number}.parquet".replace(" ", "%20")
        new = path / urllib.parse.unquote(action["path"])
        new.parent.mkdir(exist_ok=True)
        old.rename(new)
    log.write_text("\n".join(map(json.dumps, actions)))
    data = ia.delta(path)
    expected = in_order(rows_of(0, 20), data.schema)
    assert in_order(data.to_table(), data.schema) == expected
    counts = "SELECT name, count(*) FROM t GROUP BY ALL ORDER BY ALL"
    assert ia.sql(counts, t=data) == ia.sql(counts, t=expected)
    assert data.count_rows("name = 'New York'") == 10


def test_commands_take_tables(versions, invoked):
    expected = DeltaTable(versions).count()
    table = f"delta:{versions}"
    assert invoked("scan", table, "--count") == f"{expected}\n"
    (row,) = [
        json.loads(line)
        for line in invoked(
            "scan", table, "--where", "key = 'k01919'", "--format", "json"
        ).splitlines()
    ]
    assert row["key"] == "k01919"
    assert "3 files indexed" in invoked("index", "add", table, "lookup(key)").replace("3 of 3", "3")
    assert "key:lookup" in invoked("explain", table, "--where", "key = 'k01919'")
    assert "key:lookup" in invoked("status", table)
    assert "key:lookup" in invoked("index", "list", table)
    counted = invoked("sql", "SELECT count(*) AS n FROM t", f"t={table}", "--format", "json")
    assert json.loads(counted) == {"n": expected}
    assert "does not go with delta:PATH" in invoked("scan", table, "--union-by-name", code=2)
    said = invoked("index", "add", table, "lookup(key)", "--rewrite", code=2)
    assert "--rewrite is of plain files" in said


@pytest.fixture
def invoked():
    """Runs a command and returns its output, errors included."""
    runner = CliRunner()

    def run(*arguments, code=0):
        result = runner.invoke(cli, arguments)
        assert result.exit_code == code, result.output
        return result.output

    return run


def test_the_documented_features_are_those_that_are_read():
    document = Path(__file__).parents[2] / "docs/how-to/delta.md"
    rows = [line.split("|")[1:3] for line in document.read_text().splitlines() if "| yes" in line]
    documented = {name for what, _ in rows for name in re.findall(r"`(\w[\w-]*)`", what)}
    assert documented - {"appendOnly", "checkConstraints"} == READER_FEATURES


def test_functions_are_indexed_in_files_that_deltalake_rewrote(tmp_path):
    """deltalake writes strings as views then, for which pyarrow has no functions."""
    path = str(tmp_path)
    rows = pa.table({"key": [f"K{i}" for i in range(1000)], "i": range(1000)})
    deltalake.write_deltalake(path, rows)
    DeltaTable(path).delete("i = 5")
    data = ia.delta(path)
    assert pa.types.is_string_view(pq.read_schema(data.files[0]).field("key").type)
    ia.add_indexes(data, ["lookup(lower(key))", "ngram(upper(key))"])
    for where, expected in (
        ("lower(key) = 'k7'", [7]),
        ("lower(key) = 'k5'", []),
        ("upper(key) LIKE '%K99_'", [*range(990, 1000)]),
    ):
        assert ia.delta(path).to_table(filter=where)["i"].to_pylist() == expected
    (plan,) = ia.delta(path).plan(filter="lower(key) = 'k7'").files
    assert [step.source for step in plan.steps][-1] == "index lower(key):lookup"


@pytest.mark.parametrize("scheme", ["file:", "file://"])
def test_files_elsewhere_are_read(tmp_path, scheme):
    """Logs of shallow clones name files by URIs, which Hadoop writes with one slash."""
    rows = pa.table({"id": [1, 2]})
    deltalake.write_deltalake(tmp_path / "t", rows)
    (file,) = (tmp_path / "t").glob("*.parquet")
    moved = shutil.move(file, tmp_path / file.name)
    (log,) = (tmp_path / "t" / "_delta_log").glob("*.json")
    actions = [json.loads(line) for line in log.read_text().splitlines()]
    for action in actions:
        if "add" in action:
            action["add"]["path"] = f"{scheme}{moved}"
    log.write_text("\n".join(map(json.dumps, actions)))
    assert ia.delta(tmp_path / "t").to_table().equals(rows)
