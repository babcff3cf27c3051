"""``ia.write_dataset`` creates the same folders, files and rows as pyarrow's function."""

from __future__ import annotations

import datetime
import decimal
import os
import re

import fsspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from hypothesis import given, settings
from hypothesis import strategies as st

import intarsia as ia
from intarsia.errors import IndexSpecError, PathError, PredicateError
from intarsia.writer import dataset as module

STRINGS = st.one_of(
    st.none(),
    st.sampled_from(["a", "A", "ü/x", "k=v", "100%", "a b", "é", "東京", "*", "%2F", "true"]),
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0."), max_size=5),
)
KEYS = {
    pa.string(): STRINGS,
    pa.int64(): st.one_of(st.none(), st.integers(-3, 3), st.just(2**62)),
    pa.int8(): st.one_of(st.none(), st.integers(-3, 3)),
    pa.bool_(): st.one_of(st.none(), st.booleans()),
    pa.date32(): st.one_of(
        st.none(), st.dates(datetime.date(2025, 12, 30), datetime.date(2026, 1, 2))
    ),
    pa.timestamp("us"): st.one_of(st.none(), st.sampled_from([datetime.datetime(2026, 1, 1, 10)])),
    pa.float64(): st.one_of(st.none(), st.sampled_from([0.0, -0.0, 1.5, -1e300])),
    pa.decimal128(5, 2): st.one_of(st.none(), st.sampled_from([decimal.Decimal("1.50")])),
    pa.dictionary(pa.int32(), pa.string()): STRINGS,
}


@st.composite
def keyed(draw):
    """A table with row numbers and one or two keys, and the names of the keys."""
    count = draw(st.integers(0, 30))
    kinds = draw(st.lists(st.sampled_from([*KEYS]), min_size=1, max_size=2))
    columns = {
        f"key{i}": pa.array(draw(st.lists(KEYS[kind], min_size=count, max_size=count)), kind)
        for i, kind in enumerate(kinds)
    }
    return pa.table({**columns, "row": pa.array(range(count), pa.int32())}), [*columns]


def tree(folder):
    """The rows of each data file, by its path below a folder. Commits leave ``_SUCCESS`` behind."""
    return {
        os.path.relpath(os.path.join(at, name), folder): pq.read_table(
            os.path.join(at, name), partitioning=None
        )
        for at, _, names in os.walk(folder)
        for name in names
        if name != "_SUCCESS"
    }


def outcome(write, table, folder, **options):
    """The files that a function writes, or the type of its error."""
    try:
        write(table, folder, **options)
    except (ValueError, NotImplementedError, pa.ArrowException, FileNotFoundError):
        return "refused"
    return tree(folder)


@pytest.fixture(scope="module", autouse=True)
def _without_waiting_for_the_disk():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        yield


@settings(max_examples=100, deadline=None)
@given(keyed(), st.sampled_from(["hive", None, "filename"]))
def test_folders_and_rows_are_pyarrows(tmp_path_factory, drawn, flavor):
    table, keys = drawn
    root = tmp_path_factory.mktemp("lake")
    parts = pads.partitioning(pa.schema([table.schema.field(key) for key in keys]), flavor=flavor)
    options = {"format": "parquet", "partitioning": parts, "preserve_order": True}
    try:
        theirs = outcome(pads.write_dataset, table, root / "theirs", **options)
    except (OSError, pa.ArrowInvalid):  # pyarrow wrote the rows of two keys into one file at once
        theirs = None
    ours = outcome(ia.write_dataset, table, root / "ours", **options)
    if theirs is None:
        assert ours == "refused" or len(ours) < len(table.group_by(keys).aggregate([]))
        return
    assert ours == theirs
    if ours == "refused" or not table.num_rows:
        return
    has_decimal = any(pa.types.is_decimal(table.schema.field(key).type) for key in keys)
    if flavor != "filename" and not has_decimal:  # readers ignore _part-0.parquet
        plain = pads.partitioning(
            pa.schema(
                (field.name, getattr(field.type, "value_type", field.type))
                for field in parts.schema
            ),
            flavor=flavor,
        )
        read = [
            ia.dataset(root / side, partitioning=plain).to_table().sort_by("row")
            for side in ("theirs", "ours")
        ]
        assert read[0].equals(read[1])


@pytest.mark.parametrize(
    ("flavor", "value"), [(None, ".."), (None, "."), ("filename", "../x"), ("filename", "/")]
)
def test_values_that_lead_to_another_folder_are_refused(tmp_path, value, flavor):
    table = pa.table({"key": [value], "row": [1]})
    options = {"partitioning": ["key"], "partitioning_flavor": flavor}
    with pytest.raises(ValueError, match="lead to another folder"):
        ia.write_dataset(table, tmp_path / "lake", **options)
    assert not os.path.exists(tmp_path / "lake")
    options["partitioning_flavor"] = "hive"
    ia.write_dataset(table, tmp_path / "lake", **options)
    assert ia.dataset(tmp_path / "lake").to_table(["key", "row"]).equals(table)


def test_a_folder_may_end_in_a_colon(tmp_path):
    """Its files then have ``://`` in their paths, which are no URIs."""
    lake, table = tmp_path / "lake", pa.table({"key": [":/", None], "row": [1, 2]})
    ia.write_dataset(table, lake, partitioning=["key"])
    (file,) = (lake / ":").iterdir()
    below = f"{lake}/://{file.name}"
    ia.add_indexes(below, ["lookup(row)"])
    for storage in (None, pafs.LocalFileSystem()):
        rows = ia.dataset(below, filesystem=storage).to_table(filter=pc.field("row") == 1)
        assert rows.to_pylist() == [{"row": 1}]
    assert ia.verify(below) == []


TABLE = pa.table(
    {
        "day": [datetime.date(2026, 1, 1 + i % 3) for i in range(3000)],
        "region": ["eu/north" if i % 2 else None for i in range(3000)],
        "id": range(3000),
        "name": [f"n{i % 100}" for i in range(3000)],
    }
)


def test_rows_come_back_with_their_indexes(tmp_path):
    ia.write_dataset(
        TABLE,
        tmp_path / "lake",
        partitioning=["day", "region"],
        partitioning_flavor="hive",
        indexes=["id:lookup", ia.Distinct("name")],
        compression="snappy",
    )
    data = ia.dataset(tmp_path / "lake")
    assert len(data.files) == 6
    assert {os.path.basename(file) for file in data.files} == {"part-0.parquet"}
    assert data.to_table(TABLE.schema.names).sort_by("id").equals(TABLE)
    assert data.to_table(["name"], filter=pc.field("id") == 1234).to_pydict() == {"name": ["n34"]}
    one = ia.dataset(data.files[0])
    assert "id:lookup" in str(one.explain(filter=pc.field("id") == 1234))
    for file in data.files:
        assert [entry.name for entry in ia.list_indexes(file)[0].indexes] == [
            "id:lookup",
            "name:distinct",
        ]
        metadata = pq.read_metadata(file)
        assert metadata.row_group(0).column(0).compression == "SNAPPY"
        assert metadata.row_group(0).column(0).has_offset_index
        assert ia.verify(file) == []


@pytest.mark.parametrize(
    "data",
    {
        "table": lambda: TABLE,
        "batch": lambda: TABLE.combine_chunks().to_batches()[0],
        "tables": lambda: [TABLE.slice(0, 1000), TABLE.slice(1000)],
        "batches": lambda: TABLE.to_batches(max_chunksize=700),
        "reader": lambda: TABLE.to_reader(max_chunksize=700),
        "dataset": lambda: pads.dataset(TABLE),
        "scanner": lambda: pads.dataset(TABLE).scanner(),
        "stream": lambda: pytest.importorskip("polars").from_arrow(TABLE),
    }.items(),
    ids=lambda item: item[0],
)
def test_all_inputs_of_pyarrow_are_written(tmp_path, data):
    rows = data[1]()
    ia.write_dataset(rows, tmp_path / "lake", partitioning=["day"])
    actual = ia.dataset(tmp_path / "lake", partitioning=["day"]).to_table(["id", "name"])
    expected = TABLE.select(["id", "name"])
    assert actual.cast(expected.schema).sort_by("id").equals(expected)


def test_an_iterable_takes_its_schema(tmp_path):
    batches = iter(TABLE.to_batches(max_chunksize=700))
    with pytest.raises(TypeError, match="needs a schema"):
        ia.write_dataset(batches, tmp_path / "lake")
    ia.write_dataset(batches, tmp_path / "lake", schema=TABLE.schema)
    assert ia.dataset(tmp_path / "lake").to_table().equals(TABLE)


def test_our_data_sets_are_rewritten(tmp_path):
    ia.write_dataset(TABLE, tmp_path / "a", partitioning=["day"], partitioning_flavor="hive")
    data = ia.dataset(tmp_path / "a").filter(pc.field("id") < 500)
    ia.write_dataset(data, tmp_path / "b", partitioning=["region"], partitioning_flavor="hive")
    actual = ia.dataset(tmp_path / "b").to_table(["id", "region"]).sort_by("id")
    assert actual.equals(TABLE.select(["id", "region"]).slice(0, 500))
    ia.write_dataset(data, tmp_path / "a", existing_data_behavior="overwrite")
    assert (
        ia.dataset(tmp_path / "a")
        .to_table(["id"])
        .sort_by("id")
        .equals(TABLE.select(["id"]).slice(0, 500))
    )
    assert len(tree(tmp_path / "a")) == 1


def groups_of(folder):
    """The rows of each row group of each file."""
    actual = {}
    for path, _ in sorted(tree(folder).items()):
        metadata = pq.read_metadata(folder / path)
        actual[path] = [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)]
    return actual


def test_files_and_row_groups_have_as_many_rows_as_is_asked(tmp_path):
    batches = TABLE.to_batches(max_chunksize=70)
    limits = {"max_rows_per_file": 1000, "max_rows_per_group": 400, "min_rows_per_group": 400}
    ia.write_dataset(batches, tmp_path / "a", basename_template="x{i}.pq", **limits)
    assert groups_of(tmp_path / "a") == {f"x{i}.pq": [400, 400, 200] for i in range(3)}
    pads.write_dataset(batches, tmp_path / "b", format="parquet", **limits)
    assert len(tree(tmp_path / "b")) == 3
    ia.write_dataset(batches, tmp_path / "c", max_rows_per_group=1100)
    assert groups_of(tmp_path / "c") == {"part-0.parquet": [1100, 1100, 800]}


def test_few_files_are_open_and_few_rows_are_held(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "MAX_PENDING_BYTES", 10_000)
    monkeypatch.setattr(module, "_STEP_ROWS", 500)
    opened, most = [0], [0]
    init, close = ia.ParquetWriter.__init__, ia.ParquetWriter.close

    def counted(self, *args, **options):
        opened[0] += 1
        most[0] = max(most[0], opened[0])
        init(self, *args, **options)

    def closed(self):
        opened[0] -= self.is_open
        close(self)

    monkeypatch.setattr(ia.ParquetWriter, "__init__", counted)
    monkeypatch.setattr(ia.ParquetWriter, "close", closed)
    table = pa.table({"k": [i % 40 for i in range(20_000)], "id": range(20_000)})
    ia.write_dataset(
        table.to_batches(max_chunksize=500), tmp_path / "a", partitioning=["k"], max_open_files=3
    )
    assert most[0] == 3
    assert opened[0] == 0
    actual = ia.dataset(tmp_path / "a", partitioning=["k"])
    assert len(actual.files) > 40
    assert actual.to_table(["k", "id"]).sort_by("id").cast(table.schema).equals(table)


def test_existing_data_behavior_is_pyarrows(tmp_path):
    lake = tmp_path / "lake"
    by_day = {"partitioning": ["day"], "partitioning_flavor": "hive"}
    ia.write_dataset(TABLE, lake, **by_day)
    with pytest.raises(PathError, match="there are files in the folder"):
        ia.write_dataset(TABLE, lake, **by_day)
    with pytest.raises(ValueError, match="existing_data_behavior"):
        ia.write_dataset(TABLE, lake, existing_data_behavior="add", **by_day)
    more = {
        "existing_data_behavior": "overwrite_or_ignore",
        "basename_template": "more-{i}.parquet",
    }
    ia.write_dataset(TABLE.slice(0, 10), lake, **more, **by_day)
    assert ia.dataset(lake).count_rows() == 3010
    ia.write_dataset(
        TABLE.slice(0, 7), lake, existing_data_behavior="overwrite_or_ignore", **by_day
    )
    assert ia.dataset(lake).count_rows() == 17
    first = TABLE.filter(pc.field("day") == datetime.date(2026, 1, 1))
    ia.write_dataset(first, lake, existing_data_behavior="delete_matching", **by_day)
    actual = ia.dataset(lake)
    assert actual.count_rows(filter=pc.field("day") == datetime.date(2026, 1, 1)) == 1000
    assert actual.count_rows() == 1000 + 3 + 3 + 2 + 2
    assert not [file for file in actual.files if "more" in file and "day=2026-01-01" in file]


def test_the_file_visitor_is_called_as_by_pyarrow(tmp_path):
    visited = {"ours": [], "theirs": []}
    options = {"partitioning": ["day"], "format": "parquet"}
    ia.write_dataset(TABLE, tmp_path / "ours", file_visitor=visited["ours"].append, **options)
    pads.write_dataset(TABLE, tmp_path / "theirs", file_visitor=visited["theirs"].append, **options)
    for side, files in visited.items():
        assert {os.path.relpath(file.path, tmp_path / side) for file in files} == {
            f"2026-01-0{day}/part-0.parquet" for day in (1, 2, 3)
        }
        for file in files:
            assert file.metadata.num_rows == 1000
            assert file.size == os.path.getsize(file.path)
            path = file.metadata.row_group(0).column(0).file_path
            assert path == os.path.relpath(file.path, tmp_path / side)


def test_unsupported_options_are_refused(tmp_path):
    lake = tmp_path / "lake"
    for options, kind, message in (
        ({"format": "csv"}, ValueError, "format is 'parquet'"),
        (
            {"file_options": pads.ParquetFileFormat().make_write_options()},
            ValueError,
            "as arguments",
        ),
        ({"basename_template": "x.parquet"}, ValueError, "basename_template"),
        ({"basename_template": "a/{i}"}, ValueError, "basename_template"),
        ({"partitioning": ["no"]}, PredicateError, "no"),
        ({"partition_by": TABLE.schema.names}, ValueError, "no column is left for the files"),
        ({"partitioning": "day"}, ValueError, "partitioning is a list"),
        ({"partitioning": pads.partitioning(flavor="hive")}, ValueError, "with a schema"),
        ({"partitioning": ["id"], "max_partitions": 7}, ValueError, "max_partitions"),
        ({"max_rows_per_file": -1}, ValueError, "at least 0"),
        ({"max_open_files": 1.5}, TypeError, "is an integer"),
        ({"min_rows_per_group": 5, "max_rows_per_group": 4}, ValueError, "more than"),
        ({"indexes": ["no:lookup"]}, IndexSpecError, "no"),
        ({"partitioning": ["name"], "indexes": ["name:lookup"]}, IndexSpecError, "name"),
        ({"typo": 1}, TypeError, "typo"),
    ):
        with pytest.raises(kind, match=message):
            ia.write_dataset(TABLE, lake, **options)
    with pytest.raises(TypeError, match="data is a table"):
        ia.write_dataset(7, lake)
    with pytest.raises(ValueError, match="another schema"):
        ia.write_dataset([TABLE, TABLE.select(["id"])], lake)
    assert not [name for _, _, names in os.walk(lake) for name in names]


@pytest.fixture
def memory():
    yield fsspec.filesystem("memory")
    MemoryFileSystem.store.clear()
    MemoryFileSystem.pseudo_dirs[:] = [""]


def test_data_sets_are_written_to_other_storage(memory):
    ia.write_dataset(
        TABLE,
        "/lake",
        filesystem=memory,
        partitioning=["region"],
        partitioning_flavor="hive",
        indexes=["id:lookup"],
    )
    names = ["region=__HIVE_DEFAULT_PARTITION__", "region=eu%2Fnorth"]
    files = [f"/lake/{name}/part-0.parquet" for name in names]
    assert memory.find("/lake") == ["/lake/_SUCCESS", *files]
    data = ia.dataset("/lake", filesystem=memory)
    assert data.to_table(["id", "region"]).sort_by("id").equals(TABLE.select(["id", "region"]))
    more = TABLE.slice(1).filter(pc.field("region").is_valid())
    ia.write_dataset(
        more,
        "/lake",
        filesystem=memory,
        partitioning=["region"],
        partitioning_flavor="hive",
        basename_template="b{i}",
        existing_data_behavior="delete_matching",
    )
    success, kept, new = memory.find("/lake")
    assert (success, kept) == ("/lake/_SUCCESS", files[0])
    assert re.fullmatch(rf"/lake/{names[1]}/b0-[0-9a-f]{{16}}", new)
