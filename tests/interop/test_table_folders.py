"""Folders of other table formats are refused when opened, and read as plain files on request.

Files of such a folder may still hold deleted rows.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import uuid
import warnings

import deltalake
import fsspec
import polars
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from deltalake import DeltaTable
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.transforms import IdentityTransform

import intarsia as ia
from intarsia.cli.command_line import IN_SHELL, cli

TABLE = pa.table({"id": range(100), "k": [f"k{i:03}" for i in range(100)], "day": ["a", "b"] * 50})
KINDS = ("delta", "iceberg", "hudi", "stream")
REFUSED = r"(its log .* is not read here|table_format='ignore')"


def make_delta(path):
    deltalake.write_deltalake(path, TABLE, partition_by=["day"])
    DeltaTable(path).delete("id = 5")


def make_iceberg(path):
    folder = os.path.dirname(path)
    catalog = SqlCatalog("c", uri=f"sqlite:///{folder}/_c.db", warehouse=f"file://{folder}")
    catalog.create_namespace("n")
    table = catalog.create_table("n.t", schema=TABLE.schema, location=f"file://{path}")
    with table.update_spec() as spec:
        spec.add_field("day", IdentityTransform(), "day")
    table.append(TABLE)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        table.delete("id = 5")
    catalog.close()


def make_by_log(path, log):
    os.makedirs(f"{path}/{log}")
    with open(f"{path}/{log}/0", "w") as file:
        file.write("{}")
    for day in "ab":
        os.makedirs(f"{path}/day={day}")
        pq.write_table(
            TABLE.filter(pc.field("day") == day).drop(["day"]), f"{path}/day={day}/a.parquet"
        )


@pytest.fixture(scope="module", params=KINDS)
def table(request, tmp_path_factory):
    """The folder of a table, one folder below the data set's."""
    path = str(tmp_path_factory.mktemp(request.param) / "lake" / "t")
    os.makedirs(os.path.dirname(path))
    if request.param == "delta":
        make_delta(path)
    elif request.param == "iceberg":
        make_iceberg(path)
    else:
        make_by_log(path, {"hudi": ".hoodie", "stream": "_spark_metadata"}[request.param])
    return path


def data_below(table):
    actual = []
    for at, folders, names in os.walk(table):
        folders[:] = [name for name in folders if not name.startswith(("_", "."))]
        actual += [f"{at}/{name}" for name in names if name.endswith(".parquet")]
    return sorted(actual)


def places(table):
    """The table, and the folders above and below it, by name."""
    first = data_below(table)[0]
    return {
        "the table": table,
        "with a slash": f"{table}/",
        "a URI": f"file://{table}",
        "above": os.path.dirname(table),
        "further above": os.path.dirname(os.path.dirname(table)),
        "a partition": os.path.dirname(first),
        "a glob of files": f"{os.path.dirname(first)}/*.parquet",
        "a glob inside": f"{table}/*",
        "a deep glob": f"{os.path.dirname(table)}/**/*.parquet",
        "a glob of tables": f"{os.path.dirname(table)}/*",
        "a list": [table],
        "a list of both": [data_below(table)[-1], os.path.dirname(first)],
        "a list of globs": [f"{table}/**/*.parquet"],
    }


PLACES = [
    "the table",
    "with a slash",
    "a URI",
    "above",
    "further above",
    "a partition",
    "a glob of files",
    "a glob inside",
    "a deep glob",
    "a glob of tables",
    "a list",
    "a list of both",
    "a list of globs",
]


@pytest.mark.parametrize("place", PLACES)
def test_no_place_in_or_above_a_table_is_read_as_plain_files(place, table):
    path = places(table)[place]
    with pytest.raises(ia.PathError, match=REFUSED) as caught:
        ia.dataset(path)
    assert table in str(caught.value)
    opened = ia.dataset(path, table_format="ignore")
    assert opened.count_rows() > 0
    assert {"id", "k"} <= set(opened.schema.names)


def test_links_into_a_table_are_followed(table, tmp_path):
    first = data_below(table)[0]
    links = {"a": os.path.dirname(first), "b.parquet": first, "c": table}
    for name, target in links.items():
        folder = tmp_path / name[0]
        folder.mkdir()
        pq.write_table(TABLE, folder / "0.parquet")
        os.symlink(target, folder / name)
        for path in (folder, f"{folder}/*", *([] if "." in name else [folder / name])):
            with pytest.raises(ia.PathError, match=REFUSED):
                ia.dataset(path)
    os.symlink(f"{tmp_path}/a/a", tmp_path / "twice")
    with pytest.raises(ia.PathError, match=REFUSED):
        ia.dataset(tmp_path / "twice")


def test_tables_are_found_through_wrapping_file_systems(table):
    local, first = pafs.LocalFileSystem(), data_below(table)[0]
    lake, part = os.path.dirname(table), os.path.dirname(first).removeprefix(f"{table}/")
    around = {
        f"t/{part}": pafs.SubTreeFileSystem(lake, local),
        f"{part}/*.parquet": pafs.SubTreeFileSystem(table, local),
        part: pafs.SubTreeFileSystem("t", pafs.SubTreeFileSystem(lake, local)),
        f"{part}/": fsspec.filesystem("dir", path=table, fs=fsspec.filesystem("file")),
        os.path.dirname(first): fsspec.filesystem("file"),
    }
    for path, filesystem in around.items():
        with pytest.raises(ia.PathError, match=REFUSED):
            ia.dataset(path, filesystem=filesystem)
        actual = ia.dataset(path, filesystem=filesystem, table_format="ignore")
        assert actual.count_rows() > 0


def test_other_spellings_of_a_path_into_a_table_are_refused(table, tmp_path, monkeypatch):
    local, first = pafs.LocalFileSystem(), data_below(table)[0]
    part = os.path.dirname(first).removeprefix(f"{table}/")
    os.symlink(f"{table}/{part}", tmp_path / "link")
    spelled = {
        table: [part, f"./{part}", f"{part}/*.parquet", f"{table}//{part}//", "."],
        f"{table}/{part}": [".", f"../{os.path.basename(part)}"],
        str(tmp_path): ["link", "link//", f"link/../{os.path.basename(part)}"],
    }
    for folder, paths in spelled.items():
        monkeypatch.chdir(folder)
        for path in paths:
            with pytest.raises(ia.PathError, match=REFUSED):
                ia.dataset(path, filesystem=local)
            actual = ia.dataset(path, filesystem=local, table_format="ignore")
            assert actual.count_rows() > 0


@pytest.mark.parametrize("above", ["metadata", "x/metadata/y"])
def test_tables_below_a_folder_named_like_a_log_are_found(above, tmp_path):
    path = str(tmp_path / above / "t")
    os.makedirs(os.path.dirname(path))
    make_iceberg(path)
    for place in (path, tmp_path, tmp_path / above, f"{tmp_path}/**/*.parquet"):
        with pytest.raises(ia.PathError, match=REFUSED):
            ia.dataset(place)
    assert ia.dataset(path, table_format="ignore").count_rows() > 0


def test_files_whose_own_paths_are_given_are_read(table):
    files = data_below(table)
    for path in (files[0], f"file://{files[0]}", [files[0]]):
        assert ia.dataset(path).count_rows() == pq.read_metadata(files[0]).num_rows
    assert ia.dataset(files).count_rows() == pads.dataset(files).count_rows()
    assert ia.dataset([f"file://{file}" for file in files]).count_rows() > 0


def test_every_function_refuses_and_takes_the_option(table):
    ignore = {"table_format": "ignore"}
    some = pc.field("k") == "k007"
    calls = {
        "sql": lambda **o: ia.sql("SELECT 1 FROM t", t=ia.dataset(table, **o) if o else table),
        "polars": lambda **o: ia.polars.scan(table, **o).filter(polars.col("id") > 3).collect(),
        "add": lambda **o: ia.add_indexes(table, ["k:lookup"], sidecar=True, **o),
        "list": lambda **o: ia.list_indexes(table, **o),
        "drop": lambda **o: ia.drop_indexes(table, ["k:lookup"], sidecar=True, **o),
        "verify": lambda **o: ia.verify(table, **o),
        "advise": lambda **o: ia.advise(table, [some], **o),
        "catalog": lambda **o: ia.build_catalog(table, **o),
    }
    for name, call in calls.items():
        with pytest.raises(ia.PathError, match=REFUSED):
            call()
        assert call(**ignore) is not None, name
    ia.drop_catalog(table)


def test_every_function_takes_the_path_of_a_file(table):
    file = data_below(table)[0]
    rows = ia.ParquetFile(file).num_rows
    assert ia.verify(file) == []
    assert len(ia.list_indexes(file)) == len(ia.add_indexes(file, ["k:lookup"], sidecar=True)) == 1
    assert ia.drop_indexes(file, ["k:lookup"], sidecar=True)[0].dropped == ("k:lookup",)
    assert ia.sql("SELECT count(*) AS n FROM t", t=file)["n"].to_pylist() == [rows]
    assert ia.polars.scan(file).collect().height == rows


COMMANDS = [
    ("scan", "--count"),
    ("scan", "--where", "id = 5"),
    ("explain", "--where", "id = 5"),
    ("inspect",),
    ("inspect", "--json"),
    ("pages", "--json"),
    ("verify",),
    ("index list",),
    ("index add", "k:lookup", "--sidecar"),
    ("index drop", "k:lookup", "--sidecar"),
    ("index advise", "--where", "id = 5"),
    ("catalog build",),
    ("catalog refresh",),
    ("write", "OUT"),
]


def test_every_command_refuses_and_takes_the_option(table, tmp_path):
    assert "table_format='ignore'" in IN_SHELL

    def say(command, *more):
        name, *rest = command
        rest = [str(tmp_path / "out.parquet") if part == "OUT" else part for part in rest]
        return CliRunner().invoke(cli, [*name.split(), table, *rest, *more])

    for command in COMMANDS:
        result = say(command)
        assert isinstance(result.exception, ia.PathError), command
        assert "is not read here" in str(result.exception)
        result = say(command, "--table-format", "ignore")
        assert result.exit_code == 0, (command, result.output, result.exception)
    ia.drop_catalog(table)


def test_commands_take_the_path_of_a_file(table, tmp_path):
    file, out = data_below(table)[0], str(tmp_path / "out.parquet")
    more = {"write": [out], "scan": ["--count"]}
    for command in ("inspect", "pages", "verify", "index list", "scan", "explain", "write"):
        arguments = [*command.split(), file, *more.get(command, [])]
        assert CliRunner().invoke(cli, arguments).exit_code == 0, command
    assert pq.read_metadata(out).num_rows == pq.read_metadata(file).num_rows


def test_options_are_checked(table):
    for call in (ia.dataset, ia.list_indexes, ia.verify):
        with pytest.raises(ValueError, match="table_format is 'auto' or 'ignore', not 'plain'"):
            call(table, table_format="plain")


# --- folders that are no tables ------------------------------------------------------------------


def test_folders_that_only_look_like_tables_are_read(tmp_path):
    pq.write_table(TABLE, tmp_path / "a.parquet")
    (tmp_path / "metadata").mkdir()
    pq.write_table(TABLE, tmp_path / "metadata" / "b.parquet")
    assert ia.dataset(tmp_path).count_rows() == 200
    (tmp_path / "_old" / "t").mkdir(parents=True)
    deltalake.write_deltalake(str(tmp_path / "_old" / "t"), TABLE)  # no reader opens this folder
    assert ia.dataset(tmp_path).count_rows() == 200
    os.makedirs(tmp_path / "b" / "x_delta_log")
    (tmp_path / "_delta_log.txt").write_text("")
    assert ia.dataset(tmp_path).count_rows() == 200


@pytest.fixture(params=["local", "remote"])
def put(request, tmp_path):
    """Creates files, or empty folders, of these names; returns the file system and the folder's
    path.

    Names of folders end with a slash.
    """
    memory, bucket = fsspec.filesystem("memory"), f"/{uuid.uuid4().hex}"

    def made(*names):
        for name in names:
            path = tmp_path / name
            (path if name.endswith("/") else path.parent).mkdir(parents=True, exist_ok=True)
            if name.endswith(".parquet"):
                pq.write_table(TABLE, path)
            elif not name.endswith("/"):
                path.write_text("{}")
        if request.param == "local":
            return pafs.LocalFileSystem(), str(tmp_path)
        memory.put(f"{tmp_path}/", f"{bucket}/", recursive=True)
        return memory, bucket

    yield made
    if memory.exists(bucket):
        memory.rm(bucket, recursive=True)


@pytest.mark.parametrize(
    "names",
    [
        ["_delta_log"],
        [".hoodie"],
        ["_spark_metadata", "p=1/_delta_log"],
        ["metadata/x.metadata.json/"],
        ["metadata/_old/v1.metadata.json"],
        ["metadata=1/b.parquet", "k=_delta_log/c.parquet"],
    ],
)
def test_names_of_table_files_alone_do_not_make_a_table(put, names):
    filesystem, path = put("p=1/a.parquet", *names)
    for place in (path, f"{path}/p=1", f"{path}/*=*", f"{path}/**/*.parquet"):
        assert ia.dataset(place, filesystem=filesystem, partitioning=None).count_rows() >= 100


def test_a_log_in_the_home_folder_or_above_is_ignored(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    for folder in ("", "home/", "temporary/"):
        (tmp_path / f"{folder}_delta_log").mkdir(parents=True)
        (tmp_path / f"{folder}work/t/p=1").mkdir(parents=True)
        pq.write_table(TABLE, tmp_path / f"{folder}work/t/p=1/a.parquet")
    for folder in (tmp_path / "home" / "work", tmp_path / "temporary" / "work"):
        for path in (folder, folder / "t", f"{folder}/*/p=1/*.parquet"):
            assert ia.dataset(path).count_rows() == 100
    for path in (tmp_path / "home", tmp_path / "temporary", tmp_path):
        with pytest.raises(ia.PathError, match=REFUSED):
            ia.dataset(path)


def test_a_table_beside_a_folder_is_ignored(tmp_path):
    deltalake.write_deltalake(str(tmp_path / "t"), TABLE)
    (tmp_path / "u").mkdir()
    pq.write_table(TABLE, tmp_path / "u" / "a.parquet")
    assert ia.dataset(tmp_path / "u").count_rows() == 100
    assert ia.dataset(f"{tmp_path}/[uv]*/*.parquet").count_rows() == 100


# --- files of deletes ----------------------------------------------------------------------------

POSITIONS = pa.schema(
    [
        pa.field("file_path", pa.string(), False, {"PARQUET:field_id": "2147483546"}),
        pa.field("pos", pa.int64(), False, {"PARQUET:field_id": "2147483545"}),
    ]
)


@pytest.fixture
def iceberg(tmp_path):
    """An Iceberg table with files of deletes, as Spark and others write them."""
    path = str(tmp_path / "t")
    make_iceberg(path)
    folder = f"{path}/data/day=a"
    before = data_below(path)
    rows = pa.table([[before[0]], [3]], schema=POSITIONS)
    pq.write_table(rows, f"{folder}/00001-a.parquet")
    bare = rows.replace_schema_metadata().cast(
        pa.schema([("file_path", pa.string()), ("pos", pa.int64())])
    )
    pq.write_table(bare, f"{folder}/0-bare.parquet")
    equal = pa.table({"id": [7]}).replace_schema_metadata({"delete-type": "equality"})
    pq.write_table(equal, f"{folder}/0-equal.parquet")
    with open(f"{folder}/x-deletes.puffin", "wb") as file:
        file.write(b"PFA1")
    return path, before


def ids(data):
    return sorted(data.to_table()["id"].to_pylist())


def test_icebergs_deletes_are_no_data(iceberg):
    path, before = iceberg
    expected = pads.dataset(before)
    every = data_below(path)
    assert len(every) == len(before) + 3
    for file in every:
        if file not in before:
            with pytest.raises(ia.PathError, match="no data"):
                ia.dataset(file)
    for source in (every, [*every, f"{path}/data/day=a/x-deletes.puffin"]):
        assert ids(ia.dataset(source)) == ids(expected)
    for place in (path, f"{path}/data", f"{path}/**", f"{path}/data/*/*"):
        actual = ia.dataset(place, table_format="ignore")
        assert actual.schema.names == ["id", "k", "day"]
        assert ids(actual) == ids(expected)
        assert actual.count_rows(pc.field("id") == 7) == expected.count_rows(
            filter=pc.field("id") == 7
        )
    reports = ia.add_indexes(path, ["k:lookup"], sidecar=True, table_format="ignore")
    assert sorted(report.path for report in reports) == before


def test_a_table_of_two_formats_is_read_as_plain_files(tmp_path):
    """Delta's UniForm writes such tables."""
    path = str(tmp_path / "t")
    make_iceberg(path)
    os.makedirs(f"{path}/_delta_log")
    with pytest.raises(ia.PathError, match=REFUSED):
        ia.dataset(path)
    for place in (path, f"{path}/**"):
        assert ia.dataset(place, table_format="ignore").count_rows() > 0


def test_icebergs_deletes_are_no_data_without_its_metadata(iceberg, tmp_path):
    """Delete files are recognized by Spark's names. Others would have to be opened."""
    path, before = iceberg
    folder = os.path.dirname(before[0])
    for name in ("00001-a", "0-bare", "0-equal"):
        os.rename(f"{folder}/{name}.parquet", f"{folder}/{name}-deletes.parquet")
    expected = pads.dataset(before).count_rows() + 7
    pq.write_table(TABLE.slice(0, 7).drop(["day"]), f"{folder}/0-no-deletes.parquet")
    place = str(tmp_path / "moved")
    os.rename(f"{path}/data", place)
    for source in (place, f"{place}/*/*"):
        actual = ia.dataset(source, table_format="ignore")
        assert actual.count_rows() == len(ids(actual)) == expected
        assert "file_path" not in actual.schema.names


def test_a_list_of_nothing_but_deletes_has_no_data(iceberg):
    path, _ = iceberg
    for name in ("00001-a.parquet", "0-equal.parquet", "x-deletes.puffin"):
        with pytest.raises(ia.PathError, match="no data"):
            ia.dataset([f"{path}/data/day=a/{name}"])


def test_deletion_vectors_are_no_data(tmp_path):
    path = str(tmp_path / "t")
    deltalake.write_deltalake(path, TABLE)
    name = "deletion_vector_0d5b1bc5-6c2c-4a4a-ae8c-4f2f6a3c3d43.bin"
    (tmp_path / "t" / name).write_bytes(b"\x01")
    for place in (path, f"{path}/*"):
        assert ia.dataset(place, table_format="ignore").count_rows() == 100
    assert ia.dataset([*data_below(path), f"{path}/{name}"]).count_rows() == 100


# --- remote storage ------------------------------------------------------------------------------


@pytest.fixture
def remote(table):
    """The table on remote storage, and its path there."""
    memory, bucket = fsspec.filesystem("memory"), f"/{uuid.uuid4().hex}"
    memory.put(os.path.dirname(table), f"{bucket}/lake", recursive=True)
    yield memory, f"{bucket}/lake/t"
    memory.rm(bucket, recursive=True)


@pytest.mark.parametrize(
    "name",
    [place for place in PLACES if "URI" not in place],
)
def test_tables_on_remote_storage_are_found_as_well(name, table, remote):
    memory, at = remote
    path = places(table)[name]
    whole = [path] if isinstance(path, str) else path
    moved = [one.replace(table, at).replace(os.path.dirname(table), at[:-2]) for one in whole]
    if name == "further above":
        moved = [at.removesuffix("/lake/t")]
    path = moved[0] if isinstance(path, str) else moved
    for spelled in (path, path.lstrip("/") if isinstance(path, str) else path):
        with pytest.raises(ia.PathError, match=REFUSED):
            ia.dataset(spelled, filesystem=memory)
    actual = ia.dataset(path, filesystem=memory, table_format="ignore")
    assert actual.count_rows() > 0


def test_files_that_are_listed_are_read_from_remote_storage(table, remote):
    memory, at = remote
    files = [file.replace(table, at) for file in data_below(table)]
    local = ia.dataset(data_below(table)).count_rows()
    assert ia.dataset(files, filesystem=memory).count_rows() == local


@pytest.mark.parametrize("name", ["t[1]", "t*", "a?/t"])
def test_folders_whose_names_look_like_globs_are_found(table, remote, name):
    memory, at = remote
    bucket, part = at.removesuffix("/lake/t"), os.path.dirname(data_below(table)[0])
    path = f"{bucket}/x/{name}"
    memory.put(f"{table}/", f"{path}/", recursive=True)
    for place in (path, part.replace(table, path)):
        with pytest.raises(ia.PathError, match=REFUSED):
            ia.dataset(place, filesystem=memory)
        assert ia.dataset(place, filesystem=memory, table_format="ignore").count_rows() > 0


def test_tables_are_found_through_wrappers_of_remote_file_systems(table, remote):
    memory, at = remote
    inner = pafs.PyFileSystem(pafs.FSSpecHandler(memory))
    part = os.path.dirname(data_below(table)[0]).removeprefix(f"{table}/")
    lake = fsspec.filesystem("dir", path=at.removesuffix("/t"), fs=memory)
    around = [
        fsspec.filesystem("dir", path=at, fs=memory),
        fsspec.filesystem("dir", path="t", fs=lake),
        pafs.SubTreeFileSystem(at, inner),
        pafs.SubTreeFileSystem("t", pafs.PyFileSystem(pafs.FSSpecHandler(lake))),
    ]
    for filesystem in around:
        for path in (part, f"{part}/*.parquet", "/"):
            with pytest.raises(ia.PathError, match=REFUSED):
                ia.dataset(path, filesystem=filesystem)
            actual = ia.dataset(path, filesystem=filesystem, table_format="ignore")
            assert actual.count_rows() > 0


def test_tables_at_the_root_of_storage_are_found(table, tmp_path):
    archive = shutil.make_archive(str(tmp_path / "t"), "zip", table)
    filesystem = fsspec.filesystem("zip", fo=archive)
    for path in ("/", "**/*.parquet"):
        with pytest.raises(ia.PathError, match=REFUSED):
            ia.dataset(path, filesystem=filesystem)
    assert ia.dataset("/", filesystem=filesystem, table_format="ignore").count_rows() > 0
