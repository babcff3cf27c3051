"""The README's Python, run as it stands on a data set of the columns it names."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest

import intarsia as ia

ROWS = 2000
README = Path(__file__).parents[2] / "README.md"


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lake" / "logs").mkdir(parents=True)
    day = datetime(2025, 12, 31)
    ia.write_table(
        pa.table(
            {
                "ts": [day + timedelta(minutes=i) for i in range(ROWS)],
                "trace_id": [f"{i:06x}" for i in range(ROWS)],
                "user_id": [i % 100 for i in range(ROWS)],
                "email": [f"{i}@B.org" for i in range(ROWS)],
                "msg": ["disk full again" if i % 50 == 0 else "all is well" for i in range(ROWS)],
                "tags": [["urgent"] if i % 9 == 0 else [] for i in range(ROWS)],
            }
        ),
        tmp_path / "lake" / "logs" / "1.parquet",
        row_group_size=500,
    )


@pytest.mark.usefixtures("lake")
def test_the_readmes_python_runs() -> None:
    """All but Spark's, whose tests have their own sessions."""
    before_spark = README.read_text().split("## On Spark")[0]
    blocks = re.findall(r"```python\n(.*?)```", before_spark, re.DOTALL)
    assert len(blocks) > 3
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, README.name, "exec"), names)
    table, data = names["table"], names["ds"]
    assert isinstance(table, pa.Table)
    assert isinstance(data, ia.Dataset)
    assert ia.ParquetFile("a.parquet").read().equals(table)
    assert [index.name for index in ia.list_indexes("lake/logs")[0].indexes] == ["trace_id:lookup"]
