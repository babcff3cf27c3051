"""Round trips to S3, with a real client and a slow server on loopback.

A point lookup, cold, when the metadata of the section lies beyond the tail::

    HEAD ── tail ── metadata of the section,  ── page of the section ── pages of all columns
                    offset indexes of the columns

pyarrow's client gets the file's length by HEAD; no read can begin before the answer.
"""

import threading

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
import pyarrow.fs as pafs
import pytest

import intarsia as ia

ROWS = 60_000
NO_GAP = pa.CacheOptions(hole_size_limit=0, range_size_limit=1)
HEAD = 1
"""The client's own request when it opens a file."""


def id_of(row):
    return row * 7919 % 1_000_003


def table_of(rows, payload_bytes, start=0):
    noise = np.random.default_rng(start)
    payloads = {
        f"payload_{i}": [noise.bytes(payload_bytes // 2).hex() for _ in range(rows)]
        for i in range(3)
    }
    ids = [id_of(row) for row in range(start, start + rows)]
    tokens = [noise.bytes(6).hex() for _ in range(rows)]
    return pa.table(
        {"id": pa.array(ids, pa.int64()), "seq": range(rows), "token": tokens} | payloads
    )


class Lake:
    """Files on the server. Only requests within ``asking`` are logged."""

    def __init__(self, server, folder):
        self.server, self.folder, self.filesystem = server, folder, server.filesystem

    def put(self, name, table, indexes, **options):
        local = self.folder / "put.parquet"
        settings = {"max_rows_per_page": 500, "write_batch_size": 100, "compression": "none"}
        ia.write_table(table, local, indexes=indexes, use_dictionary=False, **settings | options)
        with self.filesystem.open_output_stream(f"lake/{name}") as out:
            out.write(local.read_bytes())
        return f"lake/{name}"

    def asking(self, action):
        return self.server.log(action)

    @property
    def heads(self):
        return sum(request.method == "HEAD" for request in self.server.requests)

    @property
    def ranges(self):
        """First and last byte of each read, in the order in which the requests began."""
        began = sorted(self.server.requests, key=lambda request: request.start)
        texts = [r.range.removeprefix("bytes=") for r in began if r.method == "GET" and r.range]
        return [tuple(map(int, text.split("-"))) for text in texts]

    @property
    def round_trips(self):
        return self.server.round_trips


@pytest.fixture(scope="module")
def lake(s3, tmp_path_factory):
    return Lake(s3, tmp_path_factory.mktemp("s3"))


@pytest.fixture(scope="module")
def far(lake):
    """The section of ``id`` lies before the tail, followed by sections of other columns."""
    later = [ia.Lookup(name, granule_rows=50) for name in ("token", "payload_0")]
    indexes = [ia.Lookup("id", granule_rows=500), *later]
    path = lake.put("far.parquet", table_of(ROWS, 40), indexes, row_group_size=15_000)
    file = ia.ParquetFile(path, filesystem=lake.filesystem)
    assert file.indexes[0].offset + file.indexes[0].length < file.size - 256 * 1024
    return path


@pytest.fixture(scope="module")
def near(lake):
    """The tail contains the section."""
    indexes = [ia.Lookup("id", granule_rows=500)]
    return lake.put("near.parquet", table_of(ROWS, 40), indexes, row_group_size=15_000)


def lookup(row):
    return pc.field("id") == id_of(row)


def test_a_cold_lookup_in_a_file_takes_four_round_trips_after_the_clients_own(lake, far):
    actual = lake.asking(
        lambda: ia.ParquetFile(far, filesystem=lake.filesystem).read(filter=lookup(40_000))
    )
    assert actual.column("seq").to_pylist() == [40_000]
    assert lake.heads == HEAD
    assert lake.round_trips == 4 + HEAD


def test_a_section_within_the_tail_saves_two_round_trips(lake, near):
    actual = lake.asking(
        lambda: ia.ParquetFile(near, filesystem=lake.filesystem).read(filter=lookup(40_000))
    )
    assert actual.column("seq").to_pylist() == [40_000]
    assert lake.round_trips == 2 + HEAD


def test_a_data_set_takes_as_many_round_trips_and_half_when_warm(lake, far):
    opened = []

    def cold():
        opened.append(ia.dataset(far, filesystem=lake.filesystem))
        return opened[0].to_table(filter=lookup(40_000))

    assert lake.asking(cold).column("seq").to_pylist() == [40_000]
    assert lake.round_trips == 4 + HEAD
    assert lake.heads == 3  # HEAD requests for type, length and version
    for row, trips in ((40_000, 1), (40_001, 2)):  # of the first, the section's page is held
        warm = lake.asking(lambda row=row: opened[0].to_table(filter=lookup(row)))
        assert warm.column("seq").to_pylist() == [row]
        assert lake.round_trips == trips
        assert lake.heads == 1


def test_large_pages_take_one_round_trip_more(lake, far):
    costs = pa.CacheOptions(hole_size_limit=40_000, range_size_limit=1_000_000)

    def cold():
        data = ia.dataset(far, filesystem=lake.filesystem, cache_options=costs)
        return data.to_table(filter=lookup(40_000))

    assert lake.asking(cold).column("seq").to_pylist() == [40_000]
    assert lake.round_trips == 5 + HEAD


def test_an_absent_value_takes_one_round_trip_when_warm(lake, far):
    data = ia.dataset(far, filesystem=lake.filesystem)
    absent = next(i for i in range(1_000_003) if i not in {id_of(row) for row in range(ROWS)})
    for trips in (3, 1):
        assert lake.asking(lambda: data.count_rows(filter=pc.field("id") == absent)) == 0
        assert lake.round_trips <= trips


def test_pages_of_all_columns_are_fetched_at_the_same_time(lake, far):
    costs = pa.CacheOptions(hole_size_limit=100_000, range_size_limit=1_000_000)
    data = ia.dataset(far, filesystem=lake.filesystem, cache_options=costs)
    lake.asking(lambda: data.to_table(filter=lookup(40_000)))
    requests = sorted(lake.server.requests, key=lambda request: request.start)
    pages = requests[-6:]
    assert max(request.start for request in pages) < min(request.stop for request in pages)


def test_the_pages_of_the_key_are_read_first_for_wide_rows(lake):
    wide = table_of(3000, 1000)
    path = lake.put("wide.parquet", wide, [ia.Lookup("id", granule_rows=500)], row_group_size=3000)
    data = ia.dataset(path, filesystem=lake.filesystem)
    lake.asking(lambda: data.to_table(filter=lookup(2_900)))
    assert lake.round_trips == 2  # the tail contains section and page indexes
    assert lake.ranges[0][1] - lake.ranges[0][0] < 10_000
    absent = pc.field("id") == id_of(2_900) + 1
    assert lake.asking(lambda: data.to_table(filter=absent)).num_rows == 0


def test_the_latency_of_storage_decides_which_ranges_share_a_request(lake, near):
    def requests(options):
        data = ia.dataset(near, filesystem=lake.filesystem, cache_options=options)
        data.to_table(filter=lookup(5))
        lake.asking(lambda: data.to_table(filter=lookup(5)))
        return len(lake.ranges)

    costs = pa.CacheOptions.from_network_metrics
    slow_to_answer = costs(time_to_first_byte_millis=1000, transfer_bandwidth_mib_per_sec=100)
    quick_to_answer = costs(time_to_first_byte_millis=1, transfer_bandwidth_mib_per_sec=1)
    assert requests(slow_to_answer) == 1
    assert requests(NO_GAP) == 6
    assert requests(quick_to_answer) == 6


@pytest.mark.parametrize("row", [100, 5_100], ids=["found_before", "found_nothing_before"])
def test_a_replaced_file_is_noticed(lake, row):
    indexes = [ia.Lookup("id", granule_rows=500)]
    old, new = table_of(4000, 20), table_of(4000, 20, start=4000)
    path = lake.put("replaced.parquet", old, indexes)
    asked = pc.field("id").isin([id_of(row), id_of(1), id_of(4000 + 3)])
    queries = {
        "to_table": lambda data: data.to_table(filter=asked),
        "none": lambda data: data.to_table(filter=lookup(row)),
        "count_rows": lambda data: data.count_rows(filter=asked),
        "head": lambda data: data.head(2, filter=asked),
        "take": lambda data: data.take([3, 1]),
        "to_batches": lambda data: pa.Table.from_batches(
            data.to_batches(filter=asked), data.schema
        ),
    }
    for name, query in queries.items():
        lake.put("replaced.parquet", old, indexes)
        data = ia.dataset(path, filesystem=lake.filesystem)
        query(data)
        lake.put("replaced.parquet", new, indexes)
        expected = query(ia.dataset(path, filesystem=lake.filesystem))
        assert query(data) == expected, name


def test_a_removed_file_is_an_error(lake):
    path = lake.put("removed.parquet", table_of(100, 20), [])
    data = ia.dataset(path, filesystem=lake.filesystem)
    assert data.count_rows(filter=lookup(7)) == 1
    lake.filesystem.delete_file(path)
    with pytest.raises(ia.PathError, match="no such file"):
        data.count_rows(filter=lookup(7))


def test_folders_and_missing_files_are_told_apart_from_files(lake):
    table = table_of(100, 20)
    lake.filesystem.create_dir("lake/spark.parquet/day=1")
    lake.put("spark.parquet/day=1/a.parquet", table, [])
    data = ia.dataset("lake/spark.parquet", filesystem=lake.filesystem)
    assert data.to_table(filter=lookup(7)).column("day").to_pylist() == [1]
    with pytest.raises(ia.PathError, match="no such file"):
        ia.dataset("lake/none.parquet", filesystem=lake.filesystem)
    with lake.filesystem.open_output_stream("lake/text.parquet") as out:
        out.write(b"this is not a Parquet file")
    with pytest.raises(ia.FormatError, match="not a Parquet file"):
        ia.dataset("lake/text.parquet", filesystem=lake.filesystem)


def test_many_queries_at_once_agree(lake, near):
    data = ia.dataset(near, filesystem=lake.filesystem)
    wrong = []

    def ask(start):
        for row in range(start, ROWS, ROWS // 4):
            if data.to_table(filter=lookup(row)).column("seq").to_pylist() != [row]:
                wrong.append(row)

    threads = [threading.Thread(target=ask, args=(start,)) for start in range(0, 4000, 1000)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_indexes_are_added_to_files_on_s3(lake):
    path = lake.put("plain.parquet", table_of(2000, 20), [])
    ia.add_indexes(path, [ia.Lookup("id")], filesystem=lake.filesystem)
    data = ia.dataset(path, filesystem=lake.filesystem)
    assert data.to_table(filter=lookup(1234)).column("seq").to_pylist() == [1234]
    infos = lake.filesystem.get_file_info(pafs.FileSelector("lake"))
    assert not [info.path for info in infos if "tmp" in info.path]


FILES, FILE_ROWS = 24, 50


@pytest.fixture(scope="module")
def folder(lake):
    """Two dozen small files in folders by day."""
    for i in range(FILES):
        table = table_of(FILE_ROWS, 20, start=i * FILE_ROWS)
        lake.put(f"many/{i // 12}/{i:02}.parquet", table, [])
    return "lake/many"


@pytest.fixture(params=[8, FILES])
def at_once(request):
    """The maximum number of simultaneous requests."""
    before = pa.io_thread_count()
    pa.set_io_thread_count(request.param)
    yield request.param
    pa.set_io_thread_count(before)


def test_as_many_files_are_opened_at_a_time_as_pyarrow_has_io_threads(lake, folder, at_once):
    data = ia.dataset(folder, filesystem=lake.filesystem)
    absent = pc.field("seq") == -1
    assert lake.asking(lambda: data.to_table(filter=absent)).num_rows == 0
    rounds = -(-FILES // at_once)
    # The first file is known already. Which of two dozen requests ends first is random.
    assert 2 <= lake.round_trips <= 2 * rounds + 1
    assert len(lake.ranges) == lake.heads - 1 == FILES - 1


def test_a_known_file_costs_one_request_and_all_are_sent_at_once(lake, folder, at_once):
    data = ia.dataset(folder, filesystem=lake.filesystem)
    absent = pc.field("seq") == -1
    data.to_table(filter=absent)
    for query in (lambda: data.to_table(filter=absent).num_rows, lambda: data.count_rows(absent)):
        assert lake.asking(query) == 0
        assert (lake.heads, lake.ranges) == (FILES, [])
        assert lake.round_trips <= -(-FILES // at_once) + 1
    rows = [i * FILE_ROWS for i in range(FILES)]
    data.take(rows, ["seq"])
    actual = lake.asking(lambda: data.take(rows, ["seq"]))
    assert actual.column("seq").to_pylist() == [0] * FILES
    assert lake.round_trips <= 2 * -(-FILES // at_once) + 2


def test_a_file_is_read_while_others_are(lake, folder, at_once):
    data = ia.dataset(folder, filesystem=lake.filesystem)
    asked = pc.field("seq") < 2
    expected = data.to_table(["id"], asked).column("id").to_pylist()
    assert expected == [id_of(i * FILE_ROWS + k) for i in range(FILES) for k in range(2)]
    assert lake.asking(lambda: data.to_table(["id"], asked)).num_rows == 2 * FILES
    assert lake.round_trips <= 2 * -(-FILES // at_once) + 2


def test_a_catalog_is_read_with_few_round_trips(lake):
    for number in range(4):
        table = table_of(FILE_ROWS, 40, number * FILE_ROWS)
        lake.put(f"cataloged/{number}.parquet", table, [ia.Lookup("id", granule_rows=500)])
    ia.build_catalog("lake/cataloged", filesystem=lake.filesystem)
    opened = []

    def look_up(row):
        if not opened:
            opened.append(ia.dataset("lake/cataloged", filesystem=lake.filesystem))
        return opened[0].to_table(["seq"], lookup(row))

    assert lake.asking(lambda: look_up(1)).column("seq").to_pylist() == [1]
    # Three for listings and logs of tables, two for the catalog's pointer, two for its tables.
    assert lake.round_trips <= 7 + 4  # and those of the file
    assert lake.asking(lambda: look_up(3 * FILE_ROWS)).column("seq").to_pylist() == [0]
    assert not [r for r in lake.server.requests if "_intarsia" in r.path]


def test_a_given_schema_and_partitioning_cost_no_request_per_file(lake, folder):
    schema = pa.schema([("seq", pa.int64()), ("day", pa.int8())])
    stated = [
        {"schema": schema, "partitioning": None},
        {"schema": schema},
        {"schema": schema, "partitioning": ["day"]},
        {"partitioning": ["day"]},
        {"partitioning": pads.partitioning(pa.schema([("day", pa.int16())]))},
    ]
    for options in stated:
        data = lake.asking(lambda o=options: ia.dataset(folder, filesystem=lake.filesystem, **o))
        peer = pads.dataset(
            folder, filesystem=lake.filesystem, **{"partitioning": "hive"} | options
        )
        assert lake.heads <= 3 if "schema" in options else 4, options
        assert data.schema.equals(peer.schema), options
        asked = pc.field("seq") == 1
        assert data.to_table(filter=asked) == peer.to_table(filter=asked), options
    days = ia.dataset(folder, filesystem=lake.filesystem, partitioning=["day"])
    actual = lake.asking(lambda: days.to_table(["day", "seq"], pc.field("day") == 1))
    assert actual.column("day").to_pylist() == [1] * FILE_ROWS * 12
    assert lake.heads == 12  # files of other folders are not even requested


def test_tables_of_other_formats_take_four_listings_per_parent_folder(lake):
    plain = lake.put("a/b/plain/p=1/0.parquet", table_of(10, 40), []).rpartition("/p=1")[0]
    logs = {"delta": "_delta_log/0.json", "iceberg": "metadata/v1.metadata.json"}
    for name, log in logs.items():
        file = lake.put(f"{name}/data/p=1/0.parquet", table_of(10, 40), [])
        with lake.filesystem.open_output_stream(f"lake/{name}/{log}") as out:
            out.write(b"{}")
        above = [f"lake/{name}", f"lake/{name}/data", f"lake/{name}/data/p=1", "lake/"]
        for path in (*above, f"lake/{name}/data/*/*.parquet"):
            with pytest.raises(ia.PathError, match="is not read here"):
                ia.dataset(path, filesystem=lake.filesystem)
        for path in (*above[:3], file, [file]):
            options = {"table_format": "ignore"} if path in above else {}
            assert ia.dataset(path, filesystem=lake.filesystem, **options).count_rows() == 10

    def lists(path, **options):
        options |= {"filesystem": lake.filesystem, "partitioning": None}
        lake.asking(lambda: ia.dataset(path, schema=table_of(1, 40).schema, **options))
        return sum(r.method == "GET" and not r.range for r in lake.server.requests)

    above, own = 3, 2  # the bucket, a, and b; its commit log, its files
    assert lists(plain) == 4 * above + own
    assert lists(plain, table_format="ignore") == above + own  # Iceberg's have files of deletes
    assert lists([f"{plain}/p=1/0.parquet"]) == above + 2  # and plain, and p=1
