"""What ``explain`` says of a query: its figures, its tree, and what analysing adds to them."""

import pyarrow as pa
import pyarrow.compute as pc

import intarsia as ia

PAGES = {"row_group_size": 2000, "max_rows_per_page": 500, "write_batch_size": 100}


def test_of_a_nested_column_only_the_leaves_that_are_read_are_counted(tmp_path):
    points = [{"x": i, "y": f"{i:0100}", "z": i % 7} for i in range(4000)]
    table = pa.table({"n": range(4000), "point": points})
    ia.write_table(table, tmp_path / "a.parquet", use_dictionary=False, **PAGES)
    source = ia.dataset(tmp_path / "a.parquet")

    def columns(names, wanted):
        return {read.column for read in source.plan(names, wanted).files[0].reads}

    x = pc.field("point", "x") == 3
    assert columns(["n"], x) == {"n", "point.x"}
    assert columns(["n"], x & (pc.field("point", "z") > 0)) == {"n", "point.x", "point.z"}
    assert columns(["point"], x) == {"point.x", "point.y", "point.z"}
    assert source.explain(["n"], x).planned.pages.total == 16
