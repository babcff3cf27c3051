"""Columns of DataFrames by their exact names.

Spark's expressions interpret dots, backticks and stars in names; these functions quote them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Act = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
"""A function that a task applies to its batches."""


def quoted(name: str) -> str:
    """Returns a column's name as Spark's expressions take it."""
    escaped = name.replace("`", "``")
    return f"`{escaped}`"


def map_in_arrow(df: DataFrame, act: Act, schema: str) -> DataFrame:
    """Returns ``df.mapInArrow(act, schema)``, though Spark passes columns under other names."""
    names = df.columns

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return act(batch.rename_columns(names) for batch in batches)

    return df.toDF(*(f"c{number}" for number in range(len(names)))).mapInArrow(run, schema)
