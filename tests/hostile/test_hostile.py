"""Limits of the harm a hostile file can do. docs/security.md has the complete list."""

import base64
import json
import os
import pickle
import select
import subprocess
import sys
import zlib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from crafted import (
    BOMBS,
    FILE_ID,
    ROWS,
    document_of,
    entry_of,
    footer_of,
    listed_again,
    section_of,
    sound,
    with_chunks,
    with_directory,
    with_footer,
    with_section,
)

import intarsia as ia
from intarsia.file.sidecar_discovery import Sidecars
from intarsia.index.kinds.regex_literals import required_by_regex
from intarsia.index.kinds.required_substrings import Has, required_by_like
from intarsia.index.section.probe import InvertedSection
from intarsia.io.source import BufferSource
from intarsia.parquet.footer import with_key_values
from intarsia.sql.where_clause import parse_where

WORKER = Path(__file__).with_name("worker.py")
MEMORY_BYTES = 512 * 1024 * 1024
SECONDS = float(os.environ.get("INTARSIA_HOSTILE_SECONDS", "30"))
"""Limit in seconds of processor time for a dozen ways to open, read, filter and verify a file.

Each takes at most one second on an idle machine.
"""
MEGABYTES = 300
RECOVERED = ("one_after_the_other", "pages_of_nothing", "pages_that_fit")
TAKES_ALL_THERE_IS = {"dictionary_entry_repeated_a_million_times"}
"""Values that exceed the memory: pyarrow asks for it, and is refused."""


class Worker:
    """A process with limited memory, restarted when it ends."""

    def __init__(self):
        self.process = None

    def __call__(self, action, path):
        if self.process is None or self.process.poll() is not None:
            quiet = {
                "ARROW_DEFAULT_MEMORY_POOL": "system",
                "MALLOC_ARENA_MAX": "2",
                "OMP_NUM_THREADS": "1",
                "OPENBLAS_NUM_THREADS": "1",
            }
            self.process = subprocess.Popen(
                [sys.executable, str(WORKER), str(MEMORY_BYTES)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env=os.environ | quiet,
            )
        self.process.stdin.write(f"{action}\t{path}\n")
        self.process.stdin.flush()
        ready, _, _ = select.select([self.process.stdout], [], [], 3 * SECONDS)
        line = self.process.stdout.readline() if ready else ""
        if not line:
            self.end()
            pytest.fail(f"{action} of {path} hangs, or ended the process")
        return json.loads(line)

    def end(self):
        if self.process is not None:
            self.process.kill()
            self.process.communicate()


@pytest.fixture(scope="module")
def worker():
    actual = Worker()
    yield actual
    actual.end()


@pytest.fixture
def crafted(tmp_path):
    """Writes a file of the given bytes."""

    def make(data):
        path = tmp_path / "t.parquet"
        path.write_bytes(data)
        return path

    return make


@pytest.mark.skipif(sys.platform != "linux", reason="memory is measured by /proc")
@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_refused_or_read_in_bounded_time_and_memory(name, worker, crafted):
    path = crafted(BOMBS[name]())
    actions = ["everything", "add", "add_beside", "drop"]
    if any(part in name for part in RECOVERED):
        actions = ["recovered", "recovered_as_ints"]
    for action in actions:
        actual = worker(action, path)
        assert actual["outcome"] in ("ok", "refused"), (action, actual["value"])
        assert actual["seconds"] < SECONDS, action
        if name not in TAKES_ALL_THERE_IS:
            assert actual["megabytes"] < MEGABYTES, action


def test_bombs_in_indexes_cost_no_answer(worker, crafted):
    """A faulty index never loses rows."""
    beginnings = "directory", "pointer", "function", "more_functions", "parameters", "kinds"
    names = [name for name in BOMBS if name.startswith(beginnings)]
    names += ["sections_that_overlap", "section_of_granules_that_do_not_exist"]
    assert len(names) > 15
    for name in names:
        path = crafted(BOMBS[name]())
        assert worker("rows", path)["value"] == 1, name


@pytest.mark.parametrize("values", [None, 0])
def test_repeated_row_groups_are_verified_once(values, worker, crafted):
    """Ten thousand row groups that all point to the same million rows."""
    times = 10_000
    path = crafted(listed_again(times, values=values))
    actual = worker("verified", path)
    assert actual["outcome"] == "ok", actual["value"]
    assert actual["seconds"] < SECONDS
    assert actual["megabytes"] < MEGABYTES
    assert times <= actual["value"] < times + 10


# --- nothing runs ---------------------------------------------------------------------------------


class Payload:
    """Leaves a trace if it is unpickled."""

    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return os.mkdir, (self.path,)


def test_a_pickle_in_the_arrow_schema_is_not_run(crafted, tmp_path):
    trace = tmp_path / "it-ran"
    for name in (b"arrow.py_extension_type", b"arrow.json", b"nobody.knows"):
        metadata = {
            b"ARROW:extension:name": name,
            b"ARROW:extension:metadata": pickle.dumps(Payload(trace)),
        }
        schema = pa.schema([pa.field("a", pa.int64(), metadata=metadata), ("b", pa.string())])
        text = base64.b64encode(schema.serialize()).decode()
        keys = {"ARROW:schema": text, "pandas": "!!python/object/apply:os.system ['id']"}
        path = crafted(with_footer(with_key_values(footer_of(sound()).raw, keys)))
        try:
            assert ia.ParquetFile(path).read().num_rows == ROWS
            ia.verify(path)
        except ia.FormatError:
            pass
        assert not trace.exists()


def test_only_kinds_that_are_installed_are_looked_for(crafted, monkeypatch):
    """A kind's name is looked up among entry points; it is never the name of a module."""
    imported = []
    real = __import__

    def watched(name, *rest):
        imported.append(name)
        return real(name, *rest)

    data = with_directory(document_of([entry_of(kind="antigravity"), entry_of(kind="os.system")]))
    path = crafted(data)
    monkeypatch.setattr("builtins.__import__", watched)
    file = ia.ParquetFile(path)
    assert [entry.kind for entry in file.indexes] == ["antigravity", "os.system"]
    assert file.read(filter=pc.field("a") == 1).num_rows == 1
    assert not {"antigravity", "os.system"} & set(imported)


@pytest.mark.parametrize(
    "on",
    ["read_text('/etc/passwd')", "system('id')", "(SELECT 1)", "getenv('HOME')", "a; SELECT 1"],
)
def test_functions_are_those_of_a_fixed_list(crafted, on):
    path = crafted(with_directory(document_of([entry_of(on=on, meaning="x")])))
    with pytest.warns(ia.IntarsiaWarning, match="is ignored: no index"):
        actual = ia.ParquetFile(path).read(filter=pc.utf8_lower(pc.field("b")) == "x7")
    assert actual.num_rows == 1


# --- no path outside ------------------------------------------------------------------------------


@pytest.mark.parametrize("elsewhere", ["/etc/passwd", "../other.parquet", "file:///etc/passwd"])
def test_chunks_in_other_files_are_refused_and_these_not_opened(crafted, elsewhere, monkeypatch):
    path = crafted(with_chunks(lambda chunk, i: {"file_path": elsewhere}))
    opened, real = [], os.open

    def watched(name, *rest):
        opened.append(str(name))
        return real(name, *rest)

    monkeypatch.setattr(os, "open", watched)
    for read in (
        lambda: ia.ParquetFile(path).read(),
        lambda: ia.dataset(path).to_table(filter=pc.field("a") == 1),
        lambda: ia.add_indexes(path, ["a:lookup"]),
    ):
        with pytest.raises(ia.FormatError, match=r"the data is in another file, '.*'"):
            read()
    assert set(opened) <= {str(path)}
    # Without a filter pyarrow reads it, and does not open the other file either.
    assert ia.dataset(path).to_table()["a"].to_pylist() == list(range(ROWS))


def test_chunks_of_many_columns_in_other_files_are_refused(crafted):
    out = pa.BufferOutputStream()
    pq.write_table(pa.table({f"c{n:03}": [1, 2, 3] for n in range(300)}), out)
    many = out.getvalue().to_pybytes()
    path = crafted(with_chunks(lambda chunk, i: {"file_path": "/etc/passwd"}, many))
    for columns in (None, ["c299"]):
        with pytest.raises(ia.FormatError, match="the data is in another file"):
            ia.ParquetFile(path).read(columns)
    with pytest.raises(ia.FormatError, match="the data is in another file"):
        ia.dataset(path).to_table(filter=pc.field("c007") == 2)


def test_the_error_for_a_footer_without_data_names_the_files(tmp_path):
    """Like ``_metadata`` beside data: a footer whose chunks are in other files."""
    metadata = []
    pq.write_table(pa.table({"a": [1]}), tmp_path / "a.parquet", metadata_collector=metadata)
    metadata[0].set_file_path("a.parquet")
    pq.write_metadata(metadata[0].schema.to_arrow_schema(), tmp_path / "_metadata", metadata)
    assert ia.dataset(tmp_path).to_table(filter=pc.field("a") == 1).num_rows == 1
    with pytest.raises(
        ia.FormatError, match=r"_metadata.*the data is in another file, 'a\.parquet'"
    ):
        ia.ParquetFile(tmp_path / "_metadata").read()


def test_keys_of_objects_do_not_lead_sidecars_out_of_their_folder(tmp_path):
    """Keys of object stores may contain ``..`` as a name; on a local disk it means the parent
    folder.
    """
    places = Sidecars(pa.fs.LocalFileSystem(), f"file://{tmp_path}/side")
    for key in ("bucket/../../../../etc/cron.d/t.parquet", "../../t.parquet", "bucket/./t.parquet"):
        folder = os.path.realpath(places.folder_of(key))
        assert folder.startswith(f"{tmp_path}/side")
    assert places.folder_of("bucket/a..b/t.parquet") == f"{tmp_path}/side/bucket/a..b"


def test_a_sidecar_that_lies_is_ignored(crafted, tmp_path):
    path = crafted(sound())
    ia.add_indexes(path, ["a:lookup"], sidecar=True)
    (beside,) = (path.parent / "_intarsia").iterdir()
    good = beside.read_bytes()
    (size,) = np.frombuffer(good[-12:-8], dtype="<u4").tolist()
    pointer = json.loads(good[-12 - size : -12])
    lies = [
        {"offset": 2**62},
        {"length": 2**62},
        {"offset": -1},
        {"crc32": 0},
        {"version": 7},
        {"of": {"size": 1, "stamp": "", "footer": ""}},
        {"of": "../../etc/passwd"},
        {"of": []},
    ]
    for lie in lies:
        text = json.dumps(pointer | lie).encode()
        framed = len(text).to_bytes(4, "little") + b"INTARSIA"
        beside.write_bytes(good[: -12 - size] + text + framed)
        with pytest.warns(ia.IntarsiaWarning, match="its sidecar is ignored"):
            actual = ia.ParquetFile(path).read(filter=pc.field("a") == 7)
        assert actual.num_rows == 1


# --- patterns and SQL that explode ----------------------------------------------------------------


@pytest.mark.parametrize(
    "pattern",
    [
        "".join(f"{n:04}." for n in range(700)),
        "|".join(f"x{n:04}.{n}" for n in range(300)),
        "(" * 3000 + "a" + ")" * 900,
        "(" * 50 + "ab" + "+)*{8}" * 50,
        "[a-f]" * 700,
        "(a|b|c)" * 500,
        "a{1000}{1000}{1000}",
        "x" * 1_000_000,
    ],
    ids=["pieces", "alternatives", "nested", "repeated", "classes", "choices", "copies", "long"],
)
def test_the_required_pieces_of_a_pattern_are_computed_quickly_or_not_at_all(pattern, in_time):
    with in_time:
        required_by_regex(pattern)
        required_by_like(pattern.replace(".", "%"))


def test_the_longest_pieces_of_a_long_pattern_are_required():
    pieces = [f"{n:03}" for n in range(100)] + ["needle in a haystack"]
    needs = required_by_like("%".join(pieces))
    assert Has("NEEDLE IN A HAYSTACK") in needs.parts
    assert len(needs.parts) == 16
    actual = required_by_regex(".*".join(pieces))
    assert any("NEEDLE" in part.text for part in actual.parts if isinstance(part, Has))


@pytest.mark.parametrize(
    "text",
    [
        "(" * 20_000 + "n = 1" + ")" * 20_000,
        "NOT " * 20_000 + "n = 1",
        "lower(" * 20_000 + "a" + ")" * 20_000 + " = 'x'",
        "n" + " + 1" * 20_000 + " = 1",
        "CASE WHEN " * 20_000,
        "n = " + "- " * 20_000 + "1",
    ],
    ids=["parentheses", "not", "calls", "sums", "case", "minus"],
)
def test_sql_that_nests_too_deeply_is_refused(text, in_time):
    schema = pa.schema([("a", pa.string()), ("n", pa.int64())])
    with in_time, pytest.raises(ia.PredicateError):
        parse_where(text, schema)


@pytest.fixture
def in_time():
    return InTime()


class InTime:
    """A block with a limit on its processor time."""

    def __enter__(self):
        self.began = os.times().user

    def __exit__(self, *_):
        assert os.times().user - self.began < SECONDS


# --- indexes --------------------------------------------------------------------------------------


def test_granules_that_explode_are_not_unpacked():
    """A kilobyte of deflated zeros is a megabyte; half a megabyte would be half a gigabyte."""
    packer = zlib.compressobj(1)
    packed = b"".join(packer.compress(bytes(1 << 22)) for _ in range(64)) + packer.flush()
    whole = section_of(np.arange(100), np.zeros(100))
    info = json.dumps({"file_id": FILE_ID, "granules": base64.b64encode(packed).decode()})
    data = with_footer(with_key_values(footer_of(whole).raw, {"intarsia": info}), whole)[:-4]
    meta = data[-(len(data) - 4) :]
    with pytest.raises(ia.FormatError, match="more granules"):
        InvertedSection(BufferSource(data), len(meta), zlib.crc32(meta), FILE_ID, 2**40)


def test_a_section_of_strings_is_refused_as_one_of_fingerprints(crafted):
    schema = pa.schema([("key", pa.string()), ("granule", pa.uint32())])
    out = pa.BufferOutputStream()
    with pq.ParquetWriter(out, schema, write_page_index=True) as writer:
        info = json.loads(footer_of(section_of([1], [0])).metadata.key_value("intarsia"))
        writer.add_key_value_metadata({"intarsia": json.dumps(info)})
        writer.write_table(pa.table([["x"], pa.array([0], pa.uint32())], schema=schema))
    path = crafted(with_section(bytes(out.getvalue())))
    with pytest.warns(ia.IntarsiaWarning, match="keys are no fingerprints"):
        actual = ia.ParquetFile(path).read(filter=pc.field("a") == 7)
    assert actual.num_rows == 1


def test_an_index_whose_pages_hold_too_much_is_ignored(crafted):
    path = crafted(BOMBS["section_of_one_page_that_explodes"]())
    with pytest.warns(ia.IntarsiaWarning, match=r"a page that holds 180,000,000 bytes"):
        actual = ia.ParquetFile(path).read(filter=pc.field("a") == 7)
    assert actual.num_rows == 1


def test_indexes_that_overlap_are_ignored(crafted):
    path = crafted(BOMBS["sections_that_overlap"]())
    with pytest.warns(ia.IntarsiaWarning, match="overlap"):
        assert ia.ParquetFile(path).indexes == ()


@pytest.mark.parametrize("name", ["directory_of_twenty_thousand", "more_functions_than_are_taken"])
def test_directories_of_too_many_indexes_are_ignored(crafted, name):
    path = crafted(BOMBS[name]())
    with pytest.warns(ia.IntarsiaWarning, match=r"lists 20,000 indexes|501 functions"):
        assert ia.ParquetFile(path).indexes == ()
