"""The Python code of the documentation of Spark runs unchanged, block by block."""

from __future__ import annotations

import logging
import re
from pathlib import Path

import pytest

import intarsia as ia
import intarsia.spark as ias

pytestmark = pytest.mark.spark
PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "spark.md"


@pytest.fixture
def configured(spark):
    """The settings of the session and of the log, which the page changes, are restored."""
    log = logging.getLogger("intarsia")
    level = log.level
    yield
    log.setLevel(level)
    spark.conf.unset("spark.intarsia.compression")


@pytest.mark.usefixtures("configured")
def test_the_page_runs(spark, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    columns = [
        "concat('day ', id % 3) AS day",
        "id AS ts",
        "substr(md5(string(id)), 1, 6) AS trace_id",
        "id % 9 AS user_id",
        "'ok' AS msg",
    ]
    names = {"df": spark.range(2_000).selectExpr(*columns), "ia": ia}
    for block in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL):
        exec(compile(block, PAGE.name, "exec"), names)
    lake = ia.status("lake/logs")
    covered = {index.name: index.share for index in lake.indexes}
    assert covered["trace_id:lookup"] == covered["ts:minmax"] == covered["user_id:lookup"] == 1.0
    assert names["report"].failed == ()
    assert ias.read(spark, "lake/logs", where="trace_id = 'c4ca42'").count() == 1  # md5 of 1
