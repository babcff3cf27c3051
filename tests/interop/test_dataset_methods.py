from __future__ import annotations

import itertools
import json
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import datafusion
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
import pyarrow.parquet as pq
import pytest

import intarsia as ia
from intarsia.dataset import row_numbers, scan_source
from intarsia.dataset.fragment import to_pyarrow_fragment
from intarsia.scan.files import small_file_reader

field = pads.field
FILTER = (field("k") > 40) & (field("k") < 260) & (field("word") != "w3")
OTHER = field("word").isin(["w1", "w2"])
NOWHERE = field("k") == -1
TEXT = "k BETWEEN 20 AND 290 AND word LIKE 'w_' AND lower(word) <> 'w4'"
READ = (field("k") >= 20) & (field("k") <= 290) & (field("word") != "w4")
"""The same condition as ``TEXT``, as an Expression."""
PROJECTION = {"twice": field("k") * 2, "inner": field("nested", "a"), "day": field("day")}


def small(ds: pads.Dataset) -> pads.Dataset:
    """The right side of joins, of the same class as ``ds``."""
    folder = Path(ds.files[0]).parent.parent.parent / "small"
    return ia.dataset(folder) if isinstance(ds, ia.Dataset) else pads.dataset(folder)


def sorted_table(answer: Any) -> pa.Table:
    table = answer if isinstance(answer, pa.Table) else answer.to_table()
    names = [name for name in table.column_names if not pa.types.is_nested(table[name].type)]
    return table.sort_by([(name, "ascending") for name in sorted(names)])


def rows_of_fragments(ds: pads.Dataset, condition: pads.Expression | None) -> pa.Table:
    """Compares rows only: with a filter, there may be fewer fragments."""
    fragments = ds.get_fragments(condition)
    parts = [fragment.to_table(ds.schema, filter=condition) for fragment in fragments]
    return pa.concat_tables([ds.schema.empty_table(), *parts])


def on_fragments(call: Callable[[Any], Any]) -> Callable[[pads.Dataset], list[Any]]:
    return lambda ds: [call(fragment) for fragment in ds.get_fragments(field("k") >= 0)]


def written(ds: Any, **options: Any) -> pa.Table:
    with tempfile.TemporaryDirectory() as folder:
        pads.write_dataset(ds, folder, format="parquet", **options)
        return sorted_table(pads.dataset(folder, partitioning="hive"))


def fields_of(ds: pads.Dataset, *names: str) -> pa.Schema:
    return pa.schema([ds.schema.field(name) for name in names])


def twice(scanner: pads.Scanner) -> list[int]:
    return [scanner.to_table().num_rows, scanner.to_table().num_rows]


def flat(ds: pads.Dataset) -> pads.Dataset:
    """pyarrow joins no nested columns."""
    return ds.replace_schema(fields_of(ds, "k", "word"))


def union(ds: pads.Dataset) -> pads.Dataset:
    return pads.dataset([ds, ds])


def retyped(ds: pads.Dataset) -> pads.Dataset:
    fields = [ds.schema.field("word"), pa.field("missing", pa.string()), ds.schema.field("k")]
    return ds.replace_schema(pa.schema(fields))


CALLS: dict[str, Callable[[pads.Dataset], Any]] = {
    # properties
    "schema": lambda ds: ds.schema,
    "files": lambda ds: ds.files,
    "filesystem": lambda ds: ds.filesystem,
    "format": lambda ds: ds.format.read_options,  # its scans restore extension types
    "partition_expression": lambda ds: str(ds.partition_expression),
    "partitioning": lambda ds: str(ds.partitioning.schema),
    "from_paths": lambda ds: (
        type(ds)
        .from_paths(ds.files, ds.schema, ds.format, ds.filesystem)
        .to_table(columns=["k", "word"], filter=FILTER)
    ),
    # to_table
    "to_table": lambda ds: ds.to_table(),
    "to_table filter": lambda ds: ds.to_table(filter=FILTER),
    "to_table columns": lambda ds: ds.to_table(["word", "k"]),
    "to_table columns filter": lambda ds: ds.to_table(["word", "nested"], filter=FILTER),
    "to_table no columns": lambda ds: ds.to_table([]),
    "to_table no columns filter": lambda ds: ds.to_table([], filter=FILTER),
    "to_table nothing": lambda ds: ds.to_table(filter=NOWHERE),
    "to_table nothing columns": lambda ds: ds.to_table(["word", "nested"], filter=NOWHERE),
    "to_table projection": lambda ds: ds.to_table(PROJECTION),
    "to_table projection filter": lambda ds: ds.to_table(PROJECTION, filter=OTHER),
    "to_table projection nothing": lambda ds: ds.to_table(PROJECTION, filter=NOWHERE),
    "to_table constant": lambda ds: ds.to_table({"one": pc.scalar(1)}, filter=OTHER),
    "to_table repeated column": lambda ds: ds.to_table(["k", "k"]),
    "to_table repeated column filter": lambda ds: ds.to_table(["k", "k"], filter=OTHER),
    "to_table nested filter": lambda ds: ds.to_table(filter=field("nested", "a") > 150),
    "to_table null filter": lambda ds: ds.to_table(filter=field("gap").is_null()),
    "to_table true filter": lambda ds: ds.to_table(filter=pc.scalar(True)),
    "to_table folder filter": lambda ds: ds.to_table(filter=field("day") == 2),
    "to_table folder column": lambda ds: ds.to_table(["day"], filter=OTHER),
    "to_table special columns": lambda ds: ds.to_table(["k", "__filename", "__fragment_index"]),
    "to_table special columns filter": lambda ds: ds.to_table(["k", "__filename"], filter=OTHER),
    "to_table special filter": lambda ds: ds.to_table(
        ["k"], filter=field("__filename") == ds.files[0]
    ),
    "to_table unknown column": lambda ds: ds.to_table(["nowhere"]),
    "to_table unknown column filter": lambda ds: ds.to_table(["nowhere"], filter=OTHER),
    "to_table unknown in filter": lambda ds: ds.to_table(filter=field("nowhere") == 1),
    "to_table mistyped filter": lambda ds: ds.to_table(filter=field("k") == "x"),
    "to_table filter that is no condition": lambda ds: ds.to_table(filter=field("k") + 1),
    "to_table field by position": lambda ds: ds.to_table(filter=field(0) == 41),
    "to_table column by position": lambda ds: ds.to_table([0], filter=OTHER),
    "to_table batches of nothing": lambda ds: ds.to_table(filter=OTHER, batch_size=0),
    "scanner batches of nothing": lambda ds: ds.scanner(filter=OTHER, batch_size=0).to_table(),
    "to_table options": lambda ds: ds.to_table(
        filter=OTHER,
        batch_size=7,
        batch_readahead=1,
        fragment_readahead=1,
        use_threads=False,
        cache_metadata=False,
        fragment_scan_options=pads.ParquetFragmentScanOptions(pre_buffer=False),
        memory_pool=pa.default_memory_pool(),
    ),
    "to_table unknown option": lambda ds: ds.to_table(filter=OTHER, colour="red"),
    "to_table filter of tuples": lambda ds: ds.to_table(filter=[("k", ">", 1)]),
    # the same rows by other ways
    "to_batches": lambda ds: pa.Table.from_batches(ds.to_batches(), ds.schema),
    "to_batches filter": lambda ds: pa.Table.from_batches(
        ds.to_batches(["k"], FILTER, batch_size=10), fields_of(ds, "k")
    ),
    "to_batches sizes": lambda ds: (
        max(batch.num_rows for batch in ds.to_batches(filter=FILTER, batch_size=10)) <= 10
    ),
    "to_batches left early": lambda ds: next(ds.to_batches(["k"], FILTER))[0][0],
    "count_rows": lambda ds: ds.count_rows(),
    "count_rows filter": lambda ds: ds.count_rows(FILTER),
    "count_rows nothing": lambda ds: ds.count_rows(filter=NOWHERE),
    "count_rows options": lambda ds: ds.count_rows(FILTER, use_threads=False, batch_size=3),
    "head": lambda ds: ds.head(5),
    "head filter": lambda ds: ds.head(5, ["k", "word"], OTHER),
    "head of none": lambda ds: ds.head(0, filter=OTHER),
    "head beyond": lambda ds: ds.head(10**6, filter=OTHER),
    "head projection": lambda ds: ds.head(3, columns=PROJECTION, filter=OTHER),
    "head no columns": lambda ds: ds.head(10**6, []).num_rows,
    "head no columns filter": lambda ds: ds.head(50, [], OTHER).num_rows,
    "head no columns few": lambda ds: ds.head(3, [], OTHER).num_rows,
    "head of no number": lambda ds: ds.head(None, filter=OTHER),
    "take": lambda ds: ds.take([5, 0, 5]),
    "take filter": lambda ds: ds.take([2, 1], ["k", "word"], OTHER),
    "take array": lambda ds: ds.take(pa.array([0, 3]), filter=OTHER),
    "take of none": lambda ds: ds.take(pa.array([], pa.int64())),
    "take of an empty list": lambda ds: ds.take([], ["k"], OTHER),
    "take range filter": lambda ds: ds.take(range(3), ["k"], OTHER),
    "take whole floats": lambda ds: ds.take([2.0], ["k"]),
    "take fractions": lambda ds: ds.take([1.5], ["k"]),
    "take fractions filter": lambda ds: ds.take([1.5], ["k"], OTHER),
    "take null": lambda ds: ds.take(pa.array([1, None]), ["k"]),
    "take null filter": lambda ds: ds.take(pa.array([1, None]), ["k"], OTHER),
    "take beyond no columns": lambda ds: ds.take([10**6], [], OTHER),
    "take below filter": lambda ds: ds.take([-1], ["k"], OTHER),
    "take beyond": lambda ds: ds.take([10**6]),
    "take beyond filter": lambda ds: ds.take([10**6], filter=OTHER),
    # scanner
    "scanner to_table": lambda ds: ds.scanner(["k"], FILTER).to_table(),
    "scanner to_reader": lambda ds: ds.scanner(["k"], FILTER).to_reader().read_all(),
    "scanner to_batches": lambda ds: pa.Table.from_batches(ds.scanner(["k"]).to_batches()),
    "scanner to_batches filter": lambda ds: pa.Table.from_batches(
        ds.scanner(["k"], FILTER).to_batches(), fields_of(ds, "k")
    ),
    "scanner scan_batches": lambda ds: sum(
        tagged.record_batch.num_rows for tagged in ds.scanner(["k"], FILTER).scan_batches()
    ),
    "scanner head": lambda ds: ds.scanner(["k"], FILTER).head(3),
    "scanner take": lambda ds: ds.scanner(["k"], FILTER).take(pa.array([4, 2])),
    "scanner count_rows": lambda ds: ds.scanner(["k"], FILTER).count_rows(),
    "scanner count_rows plain": lambda ds: ds.scanner(["k"]).count_rows(),
    "scanner projected_schema": lambda ds: ds.scanner(["k"], FILTER).projected_schema,
    "scanner dataset_schema": lambda ds: ds.scanner(["k"]).dataset_schema.field("k"),
    "scanner projection": lambda ds: ds.scanner(PROJECTION, OTHER).to_table(),
    "scanner columns twice": lambda ds: ds.scanner(["k", "word", "k"], FILTER).to_table(),
    "scanner nothing": lambda ds: ds.scanner(filter=NOWHERE).to_reader().read_all(),
    "scanner twice": lambda ds: twice(ds.scanner(["k"], FILTER)),
    "scanner left unused": lambda ds: isinstance(ds.scanner(filter=FILTER), pads.Scanner),
    "scanner from_dataset": lambda ds: pads.Scanner.from_dataset(ds).to_table(),
    "scanner from_dataset filter": lambda ds: pads.Scanner.from_dataset(
        ds, columns=["k"], filter=FILTER
    ).to_table(),
    "scanner from_fragment": lambda ds: [
        pads.Scanner.from_fragment(own, schema=ds.schema, filter=OTHER).count_rows()
        for own in map(to_pyarrow_fragment, ds.get_fragments())
    ],
    # derived data sets
    "filter": lambda ds: ds.filter(OTHER).to_table(),
    "filter filter": lambda ds: ds.filter(OTHER).filter(FILTER).to_table(filter=field("k") > 99),
    "filter count_rows": lambda ds: ds.filter(OTHER).count_rows(),
    "filter head": lambda ds: ds.filter(OTHER).head(4),
    "filter tuples": lambda ds: ds.filter([[("k", ">", 1), ("day", "in", [1, 2])]]).to_table(),
    "filter text": lambda ds: ds.filter(f"{TEXT} AND day < 3").to_table(),
    "to_table text": lambda ds: ds.to_table(["k", "day"], TEXT),
    "to_table text special": lambda ds: ds.to_table(["k", "__fragment_index"], TEXT),
    "to_batches text": lambda ds: pa.Table.from_batches(ds.to_batches(["k"], TEXT)),
    "to_batches text special": lambda ds: pa.Table.from_batches(
        ds.to_batches(["k", "__fragment_index"], TEXT)
    ),
    "head text": lambda ds: ds.head(7, ["k"], TEXT),
    "head text special": lambda ds: ds.head(7, ["k", "__fragment_index"], TEXT),
    "take text": lambda ds: ds.take([2, 7, 0], ["k"], TEXT),
    "count_rows text": lambda ds: ds.count_rows(TEXT),
    "scanner text": lambda ds: ds.scanner(["k"], TEXT).to_table(),
    "scanner text special": lambda ds: ds.scanner(["k", "__fragment_index"], TEXT).to_table(),
    "filter leaves the data set": lambda ds: (ds.filter(NOWHERE), ds.count_rows())[1],
    "replace_schema": lambda ds: retyped(ds).to_table(),
    "replace_schema filter": lambda ds: retyped(ds).to_table(filter=FILTER),
    "replace_schema count_rows": lambda ds: retyped(ds).count_rows(),
    "replace_schema missing": lambda ds: retyped(ds).to_table(
        filter=field("missing").is_null() & FILTER
    ),
    "replace_schema misfit": lambda ds: ds.replace_schema(pa.schema([("k", pa.list_(pa.int8()))])),
    "sort_by": lambda ds: ds.sort_by([("word", "ascending"), ("k", "descending")]).to_table(),
    "sort_by name": lambda ds: ds.sort_by("k").to_table(["k"]),
    "join": lambda ds: sorted_table(flat(ds).join(small(ds), keys="word")),
    "join inner": lambda ds: sorted_table(
        flat(ds).join(small(ds), "word", join_type="inner").to_table(["k", "weight"])
    ),
    "join filtered right": lambda ds: sorted_table(
        small(ds).join(flat(ds).filter(OTHER), "word", join_type="inner").to_table(["k", "weight"])
    ),
    "join_asof": lambda ds: sorted_table(
        flat(ds)
        .sort_by("k")
        .join_asof(small(ds).sort_by("at"), "k", "word", tolerance=-50, right_on="at")
    ),
    "join_asof filtered right": lambda ds: sorted_table(
        small(ds)
        .sort_by("at")
        .join_asof(flat(ds).filter(OTHER).sort_by("k"), "at", "word", tolerance=-50, right_on="k")
    ),
    "union": lambda ds: union(ds).to_table(),
    "union filter": lambda ds: union(ds).to_table(["k"], filter=OTHER),
    "union count_rows": lambda ds: union(ds).count_rows(filter=OTHER),
    "union children": lambda ds: [child.count_rows() for child in union(ds).children],
    # fragments
    "get_fragments": lambda ds: [fragment.path for fragment in ds.get_fragments()],
    "get_fragments rows": lambda ds: rows_of_fragments(ds, None),
    "get_fragments filter": lambda ds: rows_of_fragments(ds, FILTER),
    "get_fragments folder": lambda ds: [f.path for f in ds.get_fragments(field("day") == 2)],
    "get_fragments nothing": lambda ds: rows_of_fragments(ds, NOWHERE),
    "get_fragments unknown": lambda ds: list(ds.get_fragments(field("nowhere") == 1)),
    "get_fragments text": lambda ds: rows_of_fragments(ds, TEXT),
    "fragment buffer": on_fragments(lambda f: f.buffer),
    "fragment count_rows": on_fragments(lambda f: f.count_rows()),
    "fragment count_rows filter": on_fragments(lambda f: f.count_rows(filter=OTHER)),
    "fragment ensure_complete_metadata": on_fragments(lambda f: f.ensure_complete_metadata()),
    "fragment filesystem": on_fragments(lambda f: f.filesystem),
    "fragment format": on_fragments(lambda f: f.format.read_options),
    "fragment head": on_fragments(lambda f: f.head(2, columns=["k"])),
    "fragment head filter": on_fragments(lambda f: f.head(2, columns=["k"], filter=OTHER)),
    "fragment metadata": on_fragments(lambda f: f.metadata.num_rows),
    "fragment num_row_groups": on_fragments(lambda f: f.num_row_groups),
    "fragment open": on_fragments(lambda f: f.open().size()),
    "fragment partition_expression": on_fragments(lambda f: str(f.partition_expression)),
    "fragment path": on_fragments(lambda f: f.path),
    "fragment physical_schema": on_fragments(lambda f: f.physical_schema),
    "fragment row_groups": on_fragments(lambda f: [group.id for group in f.row_groups]),
    "fragment scanner": on_fragments(lambda f: f.scanner(columns=["k"], filter=OTHER).to_table()),
    "fragment scanner plain": on_fragments(lambda f: f.scanner().to_table()),
    "fragment split_by_row_group": on_fragments(
        lambda f: [part.count_rows() for part in f.split_by_row_group()]
    ),
    "fragment subset": on_fragments(lambda f: f.subset(row_group_ids=[0]).to_table()),
    "fragment take": on_fragments(lambda f: f.take([1, 0], columns=["word"])),
    "fragment take filter": on_fragments(
        lambda f: f.take([1, 0], columns=["word"], filter=field("k") >= 0)
    ),
    "fragment to_batches": on_fragments(
        lambda f: sum(batch.num_rows for batch in f.to_batches(filter=OTHER))
    ),
    "fragment to_table": on_fragments(lambda f: f.to_table()),
    "fragment to_table filter": on_fragments(lambda f: f.to_table(filter=OTHER)),
    "fragment to_table schema": on_fragments(
        lambda f: f.to_table(
            pa.schema([("k", pa.int64()), ("day", pa.int32())]), filter=field("k") > 3
        )
    ),
    "fragment pickled": on_fragments(
        lambda f: pickle.loads(pickle.dumps(f)).to_table(columns=["k"], filter=OTHER)
    ),
    # elsewhere
    "pickle": lambda ds: pickle.loads(pickle.dumps(ds)).to_table(),
    "pickle filter": lambda ds: pickle.loads(pickle.dumps(ds.filter(OTHER))).to_table(),
    "pickle derived": lambda ds: pickle.loads(pickle.dumps(retyped(ds))).to_table(filter=FILTER),
    "pickle keeps the partitioning": lambda ds: str(
        pickle.loads(pickle.dumps(ds)).partitioning.schema
    ),
    "write_dataset": lambda ds: written(ds),
    "write_dataset filter": lambda ds: written(ds.filter(OTHER)),
    "write_dataset scanner": lambda ds: written(ds.scanner(["k", "word"], OTHER)),
    "write_dataset partitioned": lambda ds: written(
        ds.scanner(["k", "day"], OTHER), partitioning=["day"], partitioning_flavor="hive"
    ),
}

VARIANTS = ["unfiltered", "filtered"]
REFUSALS = {
    "scanner twice": "already scanned",
}
"""Calls that raise this error, though pyarrow answers them."""
REFERENCES: dict[str, Callable[[pads.Dataset], Any]] = {
    "pickle": lambda ds: ds.to_table(),
    "pickle filter": lambda ds: ds.filter(OTHER).to_table(),
    "pickle derived": lambda ds: retyped(ds).to_table(filter=FILTER),
    "pickle keeps the partitioning": lambda ds: str(ds.partitioning.schema),
    "to_table filter of tuples": lambda ds: ds.to_table(filter=field("k") > 1),
    "filter tuples": lambda ds: ds.filter((field("k") > 1) & field("day").isin([1, 2])).to_table(),
    "filter text": lambda ds: ds.filter(READ & (field("day") < 3)).to_table(),
    "to_table text": lambda ds: ds.to_table(["k", "day"], READ),
    "to_table text special": lambda ds: ds.to_table(["k", "__fragment_index"], READ),
    "to_batches text": lambda ds: ds.to_table(["k"], READ),
    "to_batches text special": lambda ds: ds.to_table(["k", "__fragment_index"], READ),
    "head text": lambda ds: ds.head(7, ["k"], READ),
    "head text special": lambda ds: ds.head(7, ["k", "__fragment_index"], READ),
    "take text": lambda ds: ds.take([2, 7, 0], ["k"], READ),
    "count_rows text": lambda ds: ds.count_rows(READ),
    "get_fragments text": lambda ds: rows_of_fragments(ds, READ),
    "scanner text": lambda ds: ds.to_table(["k"], READ),
    "scanner text special": lambda ds: ds.to_table(["k", "__fragment_index"], READ),
}
"""Calls that pyarrow refuses for some data sets, and the call that gives the right answer instead.
"""
CLEAR = (ia.IntarsiaError, pa.ArrowException, TypeError, ValueError, KeyError, IndexError)


# --- what the child process runs ----------------------------------------------------------------


def make_data(folder: Path) -> None:
    numbers = itertools.count()
    for day in (1, 2, 3):
        (folder / "lake" / f"day={day}").mkdir(parents=True)
        k = list(itertools.islice(numbers, 100))
        table = pa.table(
            {
                "k": k,
                "word": [f"w{n % 5}" for n in k],
                "gap": pa.array([None if n % 3 else n / 2 for n in k]),
                "nested": [{"a": n, "b": [n, n + 1]} for n in k],
            }
        )
        indexes = [ia.Lookup("word", granule_rows=10), ia.Lookup("k", granule_rows=10)]
        path = folder / "lake" / f"day={day}" / "part.parquet"
        ia.write_table(
            table,
            path,
            indexes=indexes,
            row_group_size=50,
            max_rows_per_page=10,
            write_batch_size=5,
        )
    (folder / "small").mkdir()
    right = pa.table({"word": ["w1", "w2", "w3"], "at": [0, 100, 200], "weight": [1.5, 2.5, 3.5]})
    pq.write_table(right, folder / "small" / "part.parquet")


def outcome_of(call: Callable[[pads.Dataset], Any], ds: pads.Dataset) -> Any:
    try:
        return "value", call(ds)
    except Exception as error:  # noqa: BLE001 # which one is what the test is about
        return "error", error


def outcome_text(outcome: tuple[str, Any]) -> str:
    kind, value = outcome
    text = f"{type(value).__name__}: {value}" if kind == "error" else repr(value)
    return f"{kind} {text[:1500]}"


def compare(name: str, lake: Path, variant: str) -> str:
    def opened(open_: Callable[..., pads.Dataset]) -> pads.Dataset:
        ds = open_(lake, partitioning="hive")
        return ds.filter(FILTER) if variant == "filtered" else ds

    expected = outcome_of(REFERENCES.get(name, CALLS[name]), opened(pads.dataset))
    actual = outcome_of(CALLS[name], opened(ia.dataset))
    if expected[0] == "error" and actual[0] == "error" and isinstance(actual[1], CLEAR):
        return "refused by both"
    if expected[0] == actual[0] == "value" and expected[1] == actual[1]:
        return "equal"
    return f"pyarrow: {outcome_text(expected)}\nintarsia: {outcome_text(actual)}"


def work(folder: Path, variant: str, names: list[str]) -> None:
    for name in names:
        print(json.dumps({"started": name}), flush=True)  # the parent reads it
        result = compare(name, folder / "lake", variant)
        print(json.dumps({"done": name, "result": result}), flush=True)


# --- the process that sends the calls -----------------------------------------------------------


def results_of(folder: Path, variant: str) -> dict[str, str]:
    """The result of each call. If a child process dies, that call fails and the process is
    replaced.
    """
    results: dict[str, str] = {}
    while left := [name for name in CALLS if name not in results]:
        command = [sys.executable, __file__, str(folder), variant, *left]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
        started = None
        for line in ran.stdout.splitlines():
            told_ = json.loads(line)
            started = told_.get("started")
            if "done" in told_:
                results[told_["done"]] = told_["result"]
        if started is not None:
            results[started] = f"the process died, code {ran.returncode}: {ran.stderr[-2000:]}"
        elif ran.returncode:
            raise RuntimeError(f"code {ran.returncode}: {ran.stderr[-2000:]}")
    return results


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, str]]:
    folder = tmp_path_factory.mktemp("methods")
    make_data(folder)
    return {variant: results_of(folder, variant) for variant in VARIANTS}


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("name", CALLS)
def test_a_call_gives_what_pyarrow_gives(name, variant, results):
    result = results[variant][name]
    if name in REFUSALS and result not in ("equal", "refused by both"):
        ours = result.partition("\nintarsia: ")[2]
        assert ours.startswith("error")
        assert REFUSALS[name] in ours
    else:
        assert result in ("equal", "refused by both")


def called(prefix: str = "") -> set[str]:
    return {name.removeprefix(prefix).split()[0] for name in CALLS if name.startswith(prefix)}


def public(kind: type) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_")}


def test_every_public_name_of_a_pyarrow_data_set_is_called():
    assert public(pads.FileSystemDataset) <= called()


def test_every_public_name_of_a_pyarrow_fragment_is_called():
    assert public(pads.ParquetFileFragment) <= called("fragment ")


def test_every_public_name_of_a_pyarrow_scanner_is_called():
    from_elsewhere = {"from_batches"}
    assert public(pads.Scanner) - from_elsewhere <= called("scanner ")


if __name__ == "__main__":
    work(Path(sys.argv[1]), sys.argv[2], sys.argv[3:])


def test_the_schemas_metadata_is_kept(tmp_path):
    frame = pa.table({"v": range(5), "key": list("abcde")}).to_pandas().set_index("key")
    frame.to_parquet(tmp_path / "a.parquet")
    expected = field("v") > 1
    for ours, theirs in (
        (ia.dataset(tmp_path), pads.dataset(tmp_path)),
        (ia.dataset(tmp_path, on_corrupt="raise"), pads.dataset(tmp_path)),
    ):
        for actual in (
            lambda data: data.to_table(filter=expected),
            lambda data: data.to_table(["v"], filter=expected),
            lambda data: data.to_table({"v": field("v") + 1}, filter=expected),
            lambda data: data.head(2),
            lambda data: data.take([3]),
            lambda data: data.scanner(filter=expected).to_reader().read_all(),
            lambda data: pa.table(next(data.to_batches(filter=expected))),
        ):
            assert actual(ours).schema.equals(actual(theirs).schema, check_metadata=True)
        assert ours.to_table(filter=expected).to_pandas().index.tolist() == ["c", "d", "e"]
    ours, theirs = ia.ParquetFile(tmp_path / "a.parquet"), pq.ParquetFile(tmp_path / "a.parquet")
    assert ours.schema_arrow.equals(theirs.schema_arrow, check_metadata=True)
    assert ours.read(filter=expected).to_pandas().index.tolist() == ["c", "d", "e"]


def test_columns_are_computed_of_file_names(tmp_path):
    """pyarrow does not have that field here."""
    make_data(tmp_path)
    ds = ia.dataset(tmp_path / "lake", partitioning="hive")
    actual = ds.to_table({"at": field("__filename"), "k": field("k") + 1}, filter=OTHER)
    expected = ds.to_table(["__filename", "k"], filter=OTHER)
    assert actual["at"].to_pylist() == expected["__filename"].to_pylist() != []
    assert actual["k"].to_pylist() == [k + 1 for k in expected["k"].to_pylist()]


def test_rows_are_numbered_in_their_files(tmp_path):
    make_data(tmp_path)
    ds = ia.dataset(tmp_path / "lake")
    columns = ["k", "__row_number", "__filename"]
    plain = pads.dataset(tmp_path / "lake", partitioning="hive")
    for condition in (None, FILTER, NOWHERE):
        actual = ds.to_table(columns, filter=condition)
        expected = plain.to_table(["k", "__filename"], filter=condition)
        assert actual.select(["k", "__filename"]).equals(expected)
        for path in set(actual["__filename"].to_pylist()):
            own = actual.filter(field("__filename") == path)
            numbers = own["__row_number"]
            assert (
                pq.read_table(path, columns=["k"], partitioning=None)["k"].take(numbers) == own["k"]
            )


def test_rows_of_many_small_files_are_taken_as_those_of_large_ones_are(tmp_path, monkeypatch):
    for i in range(60):
        folder = tmp_path / f"k={i % 7}"
        folder.mkdir(exist_ok=True)
        kind = pa.int32() if i % 3 else pa.int64()
        columns = {"i": pa.array(range(i, i + 20), kind), "s": [f"{i} {n}" for n in range(20)]}
        if i % 5 == 0:
            del columns["s"]
        pq.write_table(pa.table(columns), folder / f"{i:02}.parquet", row_group_size=7)
    schema = pa.schema([("i", pa.int64()), ("s", pa.string()), ("k", pa.int32())])
    data = ia.dataset(tmp_path, partitioning="hive", schema=schema)
    rows = np.random.default_rng(1).integers(0, 1200, 200)
    expected = pads.dataset(tmp_path, partitioning="hive", schema=schema).take(rows)
    decoded, of_portions = [], small_file_reader.of_portions

    def watched(files, *rest):
        decoded.extend(files)
        return of_portions(files, *rest)

    monkeypatch.setattr(small_file_reader, "of_portions", watched)
    for columns in (None, ["s"], ["k", "i"], {"n": pc.field("i") + 1}):
        expected_rows = expected.select(columns) if isinstance(columns, list) else expected
        if isinstance(columns, dict):
            expected_rows = pa.table({"n": pc.add(expected.column("i"), 1)})
        assert data.take(rows, columns) == expected_rows
    assert len(decoded) > 100
    monkeypatch.setattr(row_numbers, "_SMALL_ROWS", 0)
    assert data.take(rows) == expected


def test_taking_missing_rows_is_an_error(tmp_path):
    make_data(tmp_path)
    ds = ia.dataset(tmp_path / "lake")
    with pytest.raises(IndexError, match=f"row {ds.count_rows():,} of {ds.count_rows():,}"):
        ds.take([0, ds.count_rows()])
    with pytest.raises(IndexError):
        ds.take([-1])


NAN = float("nan")
WITH_NAN = {
    "not less": ~(field("x") < 5),
    "nan is null": field("x").is_null(nan_is_null=True),
    "is nan": pc.is_nan(field("x")),
    "not equal": field("x") != 1.0,
    "not in": ~field("x").isin([1.0, 2.0]),
}


@pytest.mark.parametrize("condition", WITH_NAN.values(), ids=WITH_NAN)
@pytest.mark.parametrize("special", ["__fragment_index", "__batch_index", "__last_in_fragment"])
def test_row_and_batch_number_columns_change_no_rows(special, condition, tmp_path):
    first = pa.table({"a": range(6), "x": [1.0, NAN, 2.0, 1.0, 1.0, NAN]})
    pq.write_table(first, tmp_path / "a.parquet", row_group_size=3)
    pq.write_table(pa.table({"a": [6, 7, 8], "x": [5.0, NAN, 9.0]}), tmp_path / "b.parquet")
    data = ia.dataset(tmp_path)
    expected = data.to_table(["a"], filter=condition)["a"].to_pylist()
    whole = data.to_table(["a", special])
    number = dict(zip(*whole.to_pydict().values(), strict=True))
    actual = data.to_table([special, "a"], filter=condition).to_pydict()
    assert actual == {special: [number[a] for a in expected], "a": expected}
    computed = {"a": field("a") + 1, "n": field(special)}
    assert data.filter(condition).to_table(computed)["n"].to_pylist() == actual[special]
    assert data.scanner(["a", special], condition).to_table()["a"].to_pylist() == expected
    assert data.scanner(["a", special], condition).count_rows() == len(expected)
    assert data.head(2, ["a", special], condition)["a"].to_pylist() == expected[:2]
    assert data.take([1, 0], ["a", special], condition)["a"].to_pylist() == expected[1::-1]


def test_checksums_are_compared_where_a_scan_asks_for_it(tmp_path):
    path = tmp_path / "a.parquet"
    table = pa.table({"a": range(1000), "b": range(1000)})
    pq.write_table(table, path, compression="none", use_dictionary=False, write_page_checksum=True)
    page = ia.ParquetFile(path).pages(0, "b")[0]
    damaged = bytearray(path.read_bytes())
    damaged[page.offset + page.header_size + 50] ^= 0xFF
    path.write_bytes(damaged)
    data, expected = ia.dataset(path), field("a") >= 0
    checked = {
        "fragment_scan_options": pads.ParquetFragmentScanOptions(page_checksum_verification=True)
    }
    for scan in (
        lambda **options: data.to_table(filter=expected, **options),
        lambda **options: data.head(1000, **options),
        lambda **options: data.take([998], **options),
        lambda **options: list(data.to_batches(filter=expected, **options)),
        lambda **options: data.scanner(filter=expected, **options).to_table(),
        lambda **options: data.count_rows(field("b") > 5, **options),
    ):
        scan()
        with pytest.raises(ia.FormatError, match=r"column b, page 0.*checksum"):
            scan(**checked)
    with pytest.raises(TypeError, match="not int"):
        data.to_table(filter=expected, fragment_scan_options=5)


def test_batches_without_rows_have_their_schema(tmp_path):
    pq.write_table(pa.table({"a": [1]}), tmp_path / "a.parquet")
    data = ia.dataset(tmp_path)
    for columns in (["a"], [], {"z": field("a") + 1}):
        actual = pa.Table.from_batches(data.to_batches(columns, filter=field("a") < 0))
        assert actual.schema == pads.dataset(tmp_path).to_table(columns).schema
        assert actual.num_rows == 0


def test_fragments_take_positional_arguments_as_pyarrows_do(tmp_path):
    pq.write_table(pa.table({"a": range(9), "b": range(9)}), tmp_path / "a.parquet")
    data, condition = ia.dataset(tmp_path), field("a") > 5
    (fragment,) = data.get_fragments(condition)
    expected = pa.table({"b": [6, 7, 8]})
    assert fragment.to_table(data.schema, ["b"], condition) == expected
    assert pa.Table.from_batches(fragment.to_batches(data.schema, ["b"], condition)) == expected
    assert fragment.head(1, ["b"], condition) == expected.slice(0, 1)
    assert fragment.take([2], ["b"], condition) == expected.slice(2)
    assert fragment.count_rows(condition) == 3


@pytest.mark.parametrize("names", [None, field("a") > 1], ids=["all", "some"])
def test_columns_that_are_given_other_names_keep_their_metadata(names, tmp_path):
    schema = pa.schema([pa.field("a", pa.int64(), metadata={"unit": "m"})], {"owner": "me"})
    pq.write_table(pa.table({"a": [1, 2]}, schema), tmp_path / "a.parquet")
    columns = {"z": field("a"), "more": field("a") + 1}
    mine, own = (
        opened(tmp_path).to_table(columns, filter=names) for opened in (ia.dataset, pads.dataset)
    )
    assert mine.schema.equals(own.schema, check_metadata=True)


def test_computed_columns_take_only_expressions(tmp_path):
    pq.write_table(pa.table({"a": [1, 2]}), tmp_path / "a.parquet")
    with pytest.raises(TypeError, match="'x' is computed by an Expression, not by a str"):
        ia.dataset(tmp_path).to_table({"x": "a"}, filter=field("a") > 0)


def test_scanners_give_the_names_of_files(tmp_path):
    pq.write_table(pa.table({"a": [1, 2]}), tmp_path / "a.parquet")
    data, condition = ia.dataset(tmp_path), field("a") > 1
    expected = pa.table({"__filename": [str(tmp_path / "a.parquet")], "a": [2]})
    for take in (lambda s: s.to_table(), lambda s: s.head(1), lambda s: s.to_reader().read_all()):
        assert take(data.scanner(["__filename", "a"], condition)) == expected
    assert data.scanner(["__filename", "a"], condition).projected_schema == expected.schema
    assert data.scanner(["__filename", "a"], condition).count_rows() == 1


@pytest.mark.parametrize("columns", [[], {}, ["n"], None])
@pytest.mark.parametrize("condition", [None, field("n") > 1])
def test_schema_metadata_comes_with_any_columns(
    tmp_path: Path, columns: Any, condition: pads.Expression | None
) -> None:
    pq.write_table(pa.table({"n": [1, 2, 3]}).replace_schema_metadata({"k": "v"}), tmp_path / "a")
    ours, theirs = ia.dataset(tmp_path / "a"), pads.dataset(tmp_path / "a")
    for give in (
        lambda ds: ds.scanner(columns=columns, filter=condition).projected_schema,
        lambda ds: ds.to_table(columns=columns, filter=condition).schema,
        lambda ds: next(ds.to_batches(columns=columns, filter=condition)).schema,
    ):
        assert give(ours).metadata == give(theirs).metadata == {b"k": b"v"}
    count = 3 if condition is None else 2
    assert ours.to_table(columns=columns, filter=condition).num_rows == count


def test_datafusion_counts_rows_of_files_of_pandas(tmp_path: Path) -> None:
    pd.DataFrame({"n": [1, 2, None], "s": list("xyz")}).to_parquet(tmp_path / "a.parquet")
    context = datafusion.SessionContext()
    context.register_dataset("t", ia.dataset(tmp_path / "a.parquet"))
    query = "SELECT count(*) AS n FROM t WHERE"
    for condition, count in (("n > 1", 1), ("n IS NULL", 1), ("s <> 'x'", 2), ("n > 9", 0)):
        actual = context.sql(f"{query} {condition}").to_arrow_table()
        assert actual.column("n").to_pylist() == [count]


def test_a_scan_is_closed_where_a_computed_column_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[bool] = []
    real = scan_source.scan

    def watched(*parts: Any, **options: Any) -> Iterator[pa.Table]:
        try:
            yield from real(*parts, **options)
        finally:
            closed.append(True)

    monkeypatch.setattr(scan_source, "scan", watched)
    pq.write_table(pa.table({"b": pa.array([b"\xff"])}), tmp_path / "a")
    with pytest.raises(pa.ArrowInvalid) as failed:
        ia.dataset(tmp_path / "a").to_table(columns={"s": field("b").cast(pa.string())})
    assert closed, failed.value  # whose frames refer to the scan


def test_data_sets_are_made_of_fragments(tmp_path):
    for number in range(3):
        pq.write_table(pa.table({"a": [number]}), tmp_path / f"{number}.parquet")
    data = ia.dataset(tmp_path)
    place = data.schema, data.format, data.filesystem
    fragments = list(data.get_fragments())
    assert str(tmp_path / "0.parquet") in repr(fragments[0])
    made = ia.Dataset(fragments[1:], *place)
    assert made.to_table() == pa.table({"a": [1, 2]})
    own = pads.FileSystemDataset([one.pyarrow_fragment for one in fragments[:1]], *place)
    assert own.to_table() == pa.table({"a": [0]})


def test_a_pickled_fragment_does_not_include_the_other_files(tmp_path):
    table = pa.table({"a": [1]})
    sizes = []
    for count in (1, 20):
        for number in range(count):
            (tmp_path / f"{count}").mkdir(exist_ok=True)
            pq.write_table(table, tmp_path / f"{count}" / f"{number}.parquet")
        fragment = next(iter(ia.dataset(tmp_path / f"{count}").get_fragments()))
        stored = pickle.dumps(fragment)
        assert pickle.loads(stored).to_table() == table
        sizes.append(len(stored))
    assert sizes[1] < sizes[0] + 20
