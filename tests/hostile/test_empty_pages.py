"""Data pages without values, at which pyarrow's reader stops: no row is lost silently."""

import pickle
from pathlib import Path

import datafusion
import duckdb
import numpy as np
import polars
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
import pyarrow.parquet as pq
import pytest
from crafted import data_page, data_page_v2, dictionary_page, of_pages

import intarsia as ia
from intarsia.dataset import row_count_check
from intarsia.parquet.metadata import Encoding, PageHeader, PageType
from intarsia.parquet.thrift import encode

MAPS = pa.array([[("a", 1), ("b", 2)], [("c", 3)], None, [("d", 4)]], pa.map_("string", "int64"))
LISTS = {
    "ints": [[1, 2], [3], None, [4, 5]],
    "strings": [["a", "b"], [], ["c"], ["d", "e", "f"]],
    "within lists": [[[1, 2], [3]], [[4]], [], [[5, 6, 7]]],
    "of structs": [[{"a": 1, "b": 2}, {"a": 3, "b": 4}], [], None, [{"a": 5, "b": 6}]],
    "within structs": [{"l": [1, 2], "a": n} for n in range(4)],
    "after a field": [{"a": n, "l": [1, 2]} for n in range(4)],
    "maps": MAPS,
}
OPTIONS = {
    "one group": {},
    "groups of one row": {"row_group_size": 1},
    "page index": {"row_group_size": 3, "write_page_index": True},
    "V2 pages": {"row_group_size": 3, "data_page_version": "2.0", "compression": "zstd"},
    "some leaves": {
        "row_group_size": 1,
        "use_dictionary": ["l.list.element.b", "l.l.list.element"],
    },
}


def through_duckdb(path, names):
    lake = ia.dataset(path)  # noqa: F841 # DuckDB finds it by its name
    return duckdb.sql(f"SELECT {', '.join(names)} FROM lake").to_arrow_table()


def through_datafusion(path, names):
    context = datafusion.SessionContext()
    context.register_dataset("lake", ia.dataset(path))
    return context.sql(f"SELECT {', '.join(names)} FROM lake").to_arrow_table()


def fragment(path):
    (one,) = ia.dataset(path).get_fragments()
    return one


def in_batches(path, names, **options):
    data = ia.dataset(path)
    batches = list(data.to_batches(names, **options))
    return pa.Table.from_batches(batches)


READS = {
    "to_table": lambda path, names: ia.dataset(path).to_table(names),
    "to_batches": in_batches,
    "batches of one row": lambda path, names: in_batches(path, names, batch_size=1),
    "scanner": lambda path, names: ia.dataset(path).scanner(names).to_table(),
    "reader": lambda path, names: ia.dataset(path).scanner(names).to_reader().read_all(),
    "head": lambda path, names: ia.dataset(path).head(10, names),
    "take": lambda path, names: ia.dataset(path).take([0, 1, 2, 3], names),
    "filter": lambda path, names: ia.dataset(path).to_table(names, pc.field("n") >= 0),
    "expressions": lambda path, names: ia.dataset(path).to_table({n: pc.field(n) for n in names}),
    "sorted": lambda path, names: ia.dataset(path).sort_by("n").to_table(names),
    "fragment": lambda path, names: fragment(path).to_table(columns=names),
    "batches of a fragment": lambda path, names: pa.Table.from_batches(
        fragment(path).to_batches(columns=names)
    ),
    "scanner of a fragment": lambda path, names: fragment(path).scanner(columns=names).to_table(),
    "head of a fragment": lambda path, names: fragment(path).head(10, names),
    "filtered fragment": lambda path, names: fragment(path).to_table(
        columns=names, filter=pc.field("n") >= 0
    ),
    "pickled fragment": lambda path, names: pickle.loads(pickle.dumps(fragment(path))).to_table(
        columns=names
    ),
    "ParquetFile": lambda path, names: ia.ParquetFile(path).read(names),
    "ia.sql": lambda path, names: ia.sql(f"SELECT {', '.join(names)} FROM lake", lake=path),
    "DuckDB": through_duckdb,
    "DataFusion": through_datafusion,
    "ia.polars.scan": lambda path, names: (
        ia.polars.scan(path, reader="pages").select(names).collect().to_arrow()
    ),
    "Polars": lambda path, names: (
        polars.scan_pyarrow_dataset(ia.dataset(path)).select(names).collect().to_arrow()
    ),
}


@pytest.fixture
def written(tmp_path):
    """Writes lists with pyarrow, in chunks that begin with pages without values."""

    def write(lists, **options):
        table = pa.table({"n": range(len(lists)), "l": lists})
        path = str(tmp_path / "a.parquet")
        pq.write_table(table, path, data_page_size=1, write_batch_size=1, **options)
        return path, table

    return write


@pytest.mark.parametrize("names", [["l"], ["n", "l"]], ids="-".join)
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize("lists", LISTS.values(), ids=LISTS)
@pytest.mark.filterwarnings("ignore:.*a page index is ignored")
def test_every_way_of_reading_gives_every_row(written, lists, options, names):
    path, table = written(lists, **options)
    expected = table.select(names).to_pydict()
    for name, read in READS.items():
        assert read(path, names).to_pydict() == expected, name
    assert ia.dataset(path).count_rows() == fragment(path).count_rows() == table.num_rows


def test_pyarrow_stops_at_empty_pages(
    written,
):  # once this fails, decode/empty_pages.py can be removed
    path, _ = written([[1, 2]])
    assert pads.dataset(path).to_table(columns=["l"]).num_rows == 0


@pytest.mark.filterwarnings("ignore:.*a page index is ignored")
def test_verify_finds_nothing_and_indexes_find_all(written, tmp_path):
    path, table = written([[1, 2], [3], None, [4, 5]], row_group_size=1)
    assert list(ia.verify(path)) == []
    ia.add_indexes(path, [ia.Elements("l"), ia.PageIndex()])
    actual = ia.dataset(path).to_table(filter=ia.list_contains("l", 2))
    assert actual.to_pydict() == table.slice(0, 1).to_pydict()
    assert [finding for finding in ia.verify(path) if finding.severity == "error"] == []
    data = Path(path).read_bytes()
    torn, repaired_chunks = tmp_path / "torn.parquet", tmp_path / "repaired_chunks.parquet"
    torn.write_bytes(data[: data.rindex(b"schema")])
    ia.recover(torn, repaired_chunks, schema_from=path)
    assert ia.dataset(repaired_chunks).to_table().to_pydict() == table.to_pydict()


def test_batches_already_returned_are_not_repeated(written):
    lists = [[n] for n in range(6)] + [[6, 7], [8]]  # the last row group is the first that fails
    path, table = written(lists, row_group_size=2)
    batches = list(ia.dataset(path).to_batches(["n", "l"], batch_size=1))
    assert pa.Table.from_batches(batches).to_pydict() == table.to_pydict()


def test_columns_that_only_pyarrow_can_read_are_an_error(written):
    path, _ = written([[1, 2]])
    for filter_ in (None, pc.field("l").is_valid()):
        with pytest.raises(ia.FormatError, match=r"a\.parquet: pyarrow's reader gave 0 of 1 rows"):
            ia.dataset(path).to_table(["l", "__fragment_index"], filter_)


# --- lists alone of several files, which pyarrow scans as long as it gives all rows of each ------

STRUCTS = pa.list_(pa.struct({"a": pa.int64(), "b": pa.int64()}))
ONE, MANY = [[{"a": 1, "b": 2}, {"a": 3, "b": 4}]], [[{"a": n, "b": n}] for n in range(50)]
EMPTY_FIRST_PAGES = {"data_page_size": 1, "write_batch_size": 1, "row_group_size": 1}
FILES = {
    "sound": (MANY, {"row_group_size": 20}),
    "no row": ([], {}),
    "all left out": (ONE, EMPTY_FIRST_PAGES),
    "the first group left out": (ONE + MANY[:5], EMPTY_FIRST_PAGES),
    "the last group left out": (MANY[:5] + ONE, EMPTY_FIRST_PAGES),
    "refused": (ONE, {**EMPTY_FIRST_PAGES, "use_dictionary": ["l.list.element.b"]}),
}
LAKES = {
    "all sound": ["sound"] * 3,
    **{f"{kind} between": ["sound", kind, "sound"] for kind in FILES},
    **{f"{kind} twice": ["no row", kind, kind] for kind in FILES},
    "all kinds": [*FILES],
    "all kinds backwards": [*reversed(FILES)],
    "no file has rows": ["no row"] * 2,
}


def scanned_by(made, names, **options):
    return made.scanner(names, **options).to_table()


BATCHES = {
    "to_batches": lambda made, names, **options: pa.Table.from_batches(
        made.to_batches(names, **options), pa.schema({"l": STRUCTS})
    ),
    "scanner": scanned_by,
    "DuckDB": lambda made, names, **_: duckdb.sql("SELECT l FROM made").to_arrow_table(),
}


@pytest.fixture(params=LAKES.values(), ids=LAKES)
def lake(request, tmp_path):
    """A data set's files, and the lists in each."""
    paths, lists = [], []
    for number, kind in enumerate(request.param):
        rows, options = FILES[kind]
        path = str(tmp_path / f"{number}.parquet")
        pq.write_table(pa.table({"l": pa.array(rows, STRUCTS)}), path, **options)
        paths.append(path)
        lists.append(rows)
    return paths, lists


@pytest.mark.parametrize("read", BATCHES.values(), ids=BATCHES)
@pytest.mark.parametrize("held", [True, False], ids=["small", "large"])
def test_files_that_lack_rows_are_read_between_others(lake, read, held, monkeypatch):
    paths, lists = lake
    expected = [row for rows in lists for row in rows]
    if not held:
        monkeypatch.setattr(row_count_check, "MAX_HELD_FILE_BYTES", 0)
    for options in ({}, {"batch_size": 1}, {"use_threads": False}):
        assert read(ia.dataset(paths), ["l"], **options)["l"].to_pylist() == expected


def test_files_that_are_listed_twice_are_scanned_by_pyarrow_twice(tmp_path):
    pq.write_table(pa.table({"l": MANY}), tmp_path / "a.parquet")
    data = ia.dataset([str(tmp_path / "a.parquet")])
    fragments = [*data.get_fragments(), *data.get_fragments()]
    twice = ia.Dataset(fragments, data.schema, data.format, data.filesystem)
    actual = pa.Table.from_batches(twice.to_batches(["l", "__fragment_index"]))
    assert actual["l"].to_pylist() == MANY * 2
    assert actual["__fragment_index"].to_pylist() == [0] * len(MANY) + [1] * len(MANY)


def test_files_that_are_listed_twice_are_read_twice(lake):
    paths, lists = lake
    data = ia.dataset(paths)
    place = data.schema, data.format, data.filesystem
    fragments = [one for fragment in data.get_fragments() for one in (fragment, fragment)]
    actual = pa.Table.from_batches(ia.Dataset(fragments, *place).to_batches(["l"]), data.schema)
    assert actual["l"].to_pylist() == [row for rows in lists for row in rows + rows]


def test_pyarrow_scans_small_files_of_lists(tmp_path, monkeypatch):
    for number in range(3):
        pq.write_table(pa.table({"l": MANY}), tmp_path / f"{number}.parquet")
    data = ia.dataset(tmp_path)
    monkeypatch.setattr(ia.Dataset, "_scan_rest", None)
    assert sum(batch.num_rows for batch in data.to_batches(["l"])) == 3 * len(MANY)
    (tmp_path / "1.parquet").write_bytes(b"PAR1 no file PAR1")
    monkeypatch.undo()
    with pytest.raises(ia.FormatError, match=r"1\.parquet"):
        list(data.to_batches(["l"]))


# --- pages of flat columns, which no writer is known to leave without values ---------------------


def plain(*values):
    return data_page(np.array(values, np.int64).tobytes(), len(values))


def coded(*codes):
    body = bytes([2, 3]) + sum(code << 2 * at for at, code in enumerate(codes)).to_bytes(
        2, "little"
    )
    return data_page(body, len(codes), encoding=Encoding.RLE_DICTIONARY)


EMPTY, EMPTY_V2 = data_page(b"", 0), data_page_v2(b"", 0)
NO_CODES = data_page(b"\x02", 0, encoding=Encoding.RLE_DICTIONARY)
INDEX_HEADER = PageHeader(
    type=PageType.INDEX_PAGE, uncompressed_page_size=3, compressed_page_size=3
)
INDEX_PAGE = encode(INDEX_HEADER) + b"abc"
DICTIONARY = dictionary_page(np.array([1, 2, 3], np.int64).tobytes(), 3)
SOUND = {
    "first": [EMPTY, plain(1, 2, 3)],
    "first, V2": [EMPTY_V2, plain(1, 2, 3)],
    "two": [plain(1), EMPTY, EMPTY, plain(2, 3)],
    "last": [plain(1, 2, 3), EMPTY],
    "between index pages": [INDEX_PAGE, EMPTY, INDEX_PAGE, plain(1, 2, 3)],
    "after a dictionary": [DICTIONARY, NO_CODES, coded(0, 1, 2)],
    "before a dictionary": [EMPTY, DICTIONARY, coded(0, 1, 2)],
    "of rows without values": [data_page_v2(b"", 0, rows=2), plain(1, 2, 3)],
}
SHORT = {
    "nothing else": ([EMPTY, EMPTY], {}),
    "a dictionary alone": ([DICTIONARY], {"dictionary": True}),
    "a dictionary after data": ([coded(0, 1, 2), DICTIONARY], {}),
    "rows without values": ([data_page_v2(b"", 0, rows=2), plain(1)], {}),
    "fewer values than rows": ([plain(1, 2)], {}),
    "fewer values in the footer": ([plain(1, 2), plain(3)], {"values": 2}),
}
FLAT_READS = ("to_table", "to_batches", "batches of one row", "head", "ParquetFile")
FLAT_READS += ("fragment", "batches of a fragment", "head of a fragment")
FLAT_READS += ("ia.sql", "ia.polars.scan", "Polars")


@pytest.mark.parametrize("pages", SOUND.values(), ids=SOUND)
def test_flat_columns_are_read_past_pages_without_values(pages, tmp_path):
    path = tmp_path / "a.parquet"
    path.write_bytes(of_pages(pages, 3, dictionary=pages[0] is DICTIONARY))
    for name in FLAT_READS:
        assert READS[name](str(path), ["a"]).to_pydict() == {"a": [1, 2, 3]}, name
    assert ia.dataset(path).take([2]).to_pydict() == {"a": [3]}


@pytest.mark.parametrize(("pages", "options"), SHORT.values(), ids=SHORT)
def test_chunks_that_hold_too_few_rows_are_an_error(pages, options, tmp_path):
    path = tmp_path / "a.parquet"
    path.write_bytes(of_pages(pages, 3, **options))
    for name in FLAT_READS:
        with pytest.raises(Exception, match=r"a\.parquet, row group 0, column a"):
            READS[name](str(path), ["a"])
