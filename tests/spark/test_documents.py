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
def test_the_page_runs(spark, tmp_path):
    page = PAGE.read_text().replace("lake/", f"{tmp_path}/lake/")  # Java has a folder of its own
    names = {}
    for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL):
        exec(compile(block, PAGE.name, "exec"), names)
    lake = ia.status(tmp_path / "lake/logs")
    covered = {index.name: index.share for index in lake.indexes}
    assert covered["trace_id:lookup"] == covered["ts:minmax"] == covered["user_id:lookup"] == 1.0
    assert names["report"].failed == ()
    where = "trace_id = 'c4ca4238'"  # the hash of 1
    for folder in ("logs", "old", "copy"):
        (row,) = ias.read(spark, tmp_path / "lake" / folder, where=where).collect()
        assert (row.user_id, row.msg) == (1, "message 1")
