"""Uses every public name, as a user's program. mypy checks it, and it never runs.

``assert_type`` states the type of a call. A wrong call has a comment that mypy reports if the call
is no error. pyarrow and pyspark ship no types, so their classes are Any here.
"""

from collections.abc import Iterator
from typing import Any, assert_type

import intarsia as ia
import intarsia.spark as ias
from intarsia.catalog.build import CatalogReport
from intarsia.catalog.describe import CatalogState
from intarsia.errors import Where
from intarsia.indexing.add import IndexReport
from intarsia.plan.explanation import Explanation


def reads(path: str) -> None:
    data = ia.dataset([path], catalog="auto", on_corrupt="skip", reader="pages")
    assert_type(data, ia.Dataset)
    assert_type(data.filter("k = 1"), ia.Dataset)
    assert_type(data.count_rows("k = 1", timeout=1.5), int)
    assert_type(data.explain(filter="k = 1", analyze=True), Explanation)
    assert_type(data.prepare("k = ?"), ia.PreparedQuery)
    assert_type(data.prepare("k = ?").count_rows(1), int)
    assert_type(data.to_table(["k"], filter=[("k", "=", 1)], memory_limit="1 GB"), Any)
    assert_type(data.lookup("k", [1, 2], order="keys"), Any)
    assert_type(ia.delta(path, version=3), ia.Dataset)
    assert_type(ia.iceberg(path, ref="main"), ia.Dataset)
    assert_type(ia.sql("SELECT * FROM t WHERE k = ?", [1], t=data), Any)
    ia.explain_sql("SELECT * FROM t", t=data).to_dict()
    assert_type(ia.polars.explain(ia.polars.scan(path)).to_dict(), dict[str, Any])
    ia.contains_words("msg", "disk full")
    ia.json_extract_string("payload", "$.user.id")
    ia.list_contains("tags", "a")
    ia.list_contains_all("tags", ["a"])
    ia.list_contains_any("tags", ["a"])
    ia.map_contains("attributes", "a")


def reads_files(path: str) -> None:
    with ia.ParquetFile(path) as file:
        assert_type(file, ia.ParquetFile)
        assert_type(file.num_rows, int)
        assert_type(file.corrupt, list[ia.CorruptData])
        assert_type(file.iter_batches(rows=ia.RowRanges.of((0, 9))), Iterator[Any])
        file.read(rows=[(0, 9)])  # type: ignore[arg-type]
    ia.RowRanges.of(0, 9)  # type: ignore[arg-type]


def indexes(path: str) -> None:
    kinds = [
        ia.Lookup("k"),
        ia.Distinct("k"),
        ia.DistinctIDX1("k"),
        ia.MinMax("k"),
        ia.NGram("k"),
        ia.Words("k"),
        ia.Elements("k"),
        ia.Entries("k"),
    ]
    assert_type(ia.add_indexes(path, kinds), list[IndexReport])
    parquet_indexes = [ia.Lookup("k"), ia.Bloom("k"), ia.PageIndex()]
    assert_type(parquet_indexes, list[ia.Index])
    ia.write_dataset(path, "lake", indexes=parquet_indexes)
    with_text: list[ia.Index | str] = [ia.Bloom("k"), "lookup(k)"]
    ia.rewrite(path, indexes=with_text)
    ia.add_indexes(path, [ia.Bloom("k"), ia.PageIndex(), "lookup(k)"])
    assert_type(ia.list_indexes(path), list[IndexReport])
    assert_type(ia.drop_indexes(path, "lookup(k)"), list[IndexReport])
    ia.export_index(path, "lookup(k)", "out.parquet")
    assert_type(ia.register_index_kind(ia.Lookup), type[ia.Lookup])
    ia.add_indexes(path)  # type: ignore[call-arg]
    ia.add_indexes(path, [1])  # type: ignore[list-item]
    ia.add_indexes(path, kinds, keeps=True)  # type: ignore[call-arg]
    ia.Lookup()  # type: ignore[call-arg]


def writes(path: str, table: Any) -> None:
    ia.write_table(table, path, indexes=["k:lookup"], sort_by=["k"])
    ia.write_dataset(table, path, partition_by=["day"], existing_data_behavior="append")
    with ia.ParquetWriter(path, table.schema) as writer:
        assert_type(writer, ia.ParquetWriter)
        writer.write_table(table)
    ia.write_dataset(table, path, existing_data_behavior="replace")  # type: ignore[arg-type]
    assert_type(ia.rewrite(path, target_file_size="64 MB"), ia.RewriteReport)
    assert_type(ia.rewrite(path).to_dict(), dict[str, Any])


def lakes(path: str) -> None:
    advice = ia.advise(path, ["k = 1"])
    assert_type(advice, ia.Advice)
    assert_type(advice.indexes, list[str])
    ia.status(path).to_dict()
    ia.maintain(path, dry_run=True).to_dict()
    assert_type(ia.build_catalog(path), CatalogReport)
    assert_type(ia.show_catalog(path), CatalogState)
    assert_type(ia.drop_catalog(path), int)
    assert_type(ia.recover_dataset(path), list[str])
    assert_type(ia.recover(path, "out.parquet"), ia.Recovery)
    ia.set_memory_limit("1 GB")
    assert_type(ia.memory_limit(), int | None)
    ia.usage.enable()
    for finding in ia.verify(path):
        assert_type(finding, ia.Finding)
        assert_type(finding.severity, ia.Severity)
        assert_type(finding.where, Where)
    ia.recover(path)  # type: ignore[call-arg]
    ia.datset(path)  # type: ignore[attr-defined]


def errors(path: str) -> str:
    try:
        ia.dataset(path, on_corrupt="ignore")  # type: ignore[arg-type]
    except (ia.PathError, ia.FormatError, ia.UnsupportedError, ia.IndexSpecError) as error:
        return str(error)
    except (ia.PredicateError, ia.MissingDependencyError, ia.OutOfMemoryError):
        return ia.__version__
    except (ia.QueryTimeoutError, ia.IntarsiaError) as error:
        assert_type(error, ia.QueryTimeoutError | ia.IntarsiaError)
    return ia.CorruptDataWarning.__name__ + ia.IntarsiaWarning.__name__


def spark(path: str, frame: Any) -> None:
    session = ias.session(app_name="program")
    ias.register(session)
    ias.read(session, path, where="k = 1")
    ias.read_delta(session, path, version=3)
    ias.read_iceberg(session, path, ref="main")
    ias.sql(session, "SELECT * FROM t", t=path)
    assert_type(ias.explain(session, path), ias.ReadExplanation)
    assert_type(ias.explain(session, path).explanation, Explanation)
    assert_type(ias.write(frame, path, indexes=[ia.Lookup("k")]), list[ias.WrittenFile])
    ias.cluster(frame, ["k"])
    assert_type(ias.optimize(session, path), list[ias.OptimizedFolder])
    ias.maintain(session, path).to_dict()
    assert_type(ias.recover(path), list[str])
    ias.add_indexes(session, path, ["lookup(k)"], progress=ias.show_progress)
    ias.drop_indexes(session, path, all=True)
    assert_type(ias.build_catalog(session, path), CatalogReport)
    ias.read(session)  # type: ignore[call-arg]
    ias.read(session, path, filter="k = 1")  # type: ignore[call-arg]
