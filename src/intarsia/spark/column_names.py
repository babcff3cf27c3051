"""Columns of DataFrames, whatever they are called: Spark sees more in dots, backticks and stars."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Act = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
"""What a task does with its rows."""


def quoted(name: str) -> str:
    """A column's name as Spark's expressions take it."""
    escaped = name.replace("`", "``")
    return f"`{escaped}`"


def map_in_arrow(df: DataFrame, act: Act, schema: str) -> DataFrame:
    """``df.mapInArrow(act, schema)``: columns travel by number, and tasks have their names."""
    names = df.columns

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return act(batch.rename_columns(names) for batch in batches)

    return df.toDF(*(f"c{number}" for number in range(len(names)))).mapInArrow(run, schema)
