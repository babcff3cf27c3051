"""This version reads the files of every released version, by their indexes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from write_files import CHANGED, EMBEDDED, IN_SIDECAR, ROWS, rows

import intarsia as ia

HERE = Path(__file__).parent
VERSIONS = sorted(path.name for path in HERE.iterdir() if (path / "embedded.parquet").exists())

IS_OLDER_UNICODE = pc.utf8_lower(pa.scalar("\U0001df40")).as_py() == "\U0001df40"
"""True if this pyarrow folds case by an older Unicode than that of the writer of the files.

An index of folded strings is ignored then.
"""


@pytest.fixture(params=VERSIONS)
def files(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A copy of the files of a version, with the modification times that sidecars and catalog
    record.
    """
    copied = tmp_path / "files"
    shutil.copytree(HERE / request.param, copied)
    for path in copied.glob("**/*.parquet"):
        os.utime(path, (CHANGED, CHANGED))
    return copied


def listed(table: pa.Table) -> str:
    """All rows; NaN equals NaN."""
    return str(table.to_pylist())


def test_this_version_has_files() -> None:
    assert ia.__version__ in VERSIONS


QUESTIONS = {
    "id = 15838": "index id:lookup",
    "lower(name) = 'name 62'": "index lower(name):lookup",
    "user = '00000000-0000-0000-0000-000000000019'": "bloom filter",
    "price = 0.74": "index price:minmax",
    "msg LIKE '%no. 77'": "index msg:ngram",
    "contains_words(msg, 'straße 203')": "index msg:words",
    "level = 'error'": "index level:distinct",
    "list_contains(tags, 't7')": "index tags:elements",
    "attrs['host'] = 'h7'": "index attrs:entries",
    "ts = '2026-01-01 00:33:00'": "page index",
}


@pytest.mark.filterwarnings("ignore:.*its functions meant")
@pytest.mark.parametrize("condition", QUESTIONS)
def test_indexes_in_files_answer(condition: str, files: Path) -> None:
    data = ia.dataset(files / "embedded.parquet", reader="pages")
    expected = ia.sql(f"SELECT * FROM t WHERE {condition}", t=rows())
    assert 0 < expected.num_rows < ROWS / 2
    assert listed(data.to_table(filter=condition)) == listed(expected)
    (file,) = data.plan(filter=condition).files
    used = [step for step in file.steps if step.source.startswith(QUESTIONS[condition])]
    if IS_OLDER_UNICODE and condition.startswith("lower("):
        assert not used
        return
    assert used, file.steps
    assert used[0].rows < ROWS


def test_all_kinds_are_listed_and_verified(files: Path) -> None:
    kinds = {type(index) for index in EMBEDDED}
    assert kinds == {
        *(ia.Lookup, ia.Bloom, ia.MinMax, ia.NGram, ia.Words),
        *(ia.Distinct, ia.Elements, ia.Entries, ia.PageIndex),
    }
    for path in files.glob("*.parquet"):
        findings = [finding.message for finding in ia.verify(path)]
        if IS_OLDER_UNICODE and path.name == "embedded.parquet":
            assert "its functions meant" in findings.pop()
        assert findings == []
    assert ia.verify(files / "lake") == []
    (report,) = ia.list_indexes(files / "embedded.parquet")
    listed_kinds = {entry.kind for entry in report.indexes}
    assert listed_kinds >= {"lookup", "minmax", "ngram", "words", "distinct", "elements", "entries"}


def test_the_standard_index_answers(files: Path) -> None:
    data = ia.dataset(files / "standard.parquet", reader="pages", distinct_index_column="level")
    assert data.count_rows("level = 'none'") == 0
    assert data.count_rows("level = 'error'") == 100
    (file,) = data.plan(filter="level = 'nope'").files or [None]
    assert file is None or not file.rows


def test_sidecars_answer(files: Path) -> None:
    data = ia.dataset(files / "sidecar.parquet", reader="pages")
    assert listed(data.to_table(filter="id = 15838")) == listed(rows().slice(2, 1))
    steps = [step.source for file in data.plan(filter="id = 15838").files for step in file.steps]
    assert any("id:lookup" in step for step in steps), steps
    assert len(IN_SIDECAR) == 2


def test_catalogs_answer(files: Path) -> None:
    data = ia.dataset(files / "lake", catalog=True)
    expected = rows(ROWS)["id"][5].as_py()
    assert data.to_table(filter=pc.field("id") == expected)["part"].to_pylist() == [1]
    plan = data.plan(filter=pc.field("id") == expected)
    assert plan.figures.files.selected == 1
    state = ia.show_catalog(files / "lake")
    assert (state.files, state.changed, state.rows) == (3, 0, 3 * ROWS)


def test_checkpoints_are_recovered(files: Path, tmp_path: Path) -> None:
    ia.recover(files / "torn.bin", tmp_path / "whole.parquet")
    actual = ia.ParquetFile(tmp_path / "whole.parquet").read()
    assert actual.num_rows >= ROWS
    expected = pa.concat_tables([rows(), rows(ROWS)])
    assert listed(actual) == listed(expected.slice(0, actual.num_rows))


def test_indexes_are_added_and_dropped(files: Path) -> None:
    path = files / "embedded.parquet"
    ia.add_indexes(path, [ia.Lookup("user", granule_rows=64)])
    expected = rows()["user"][3].as_py()
    before = ia.dataset(path).to_table(filter=pc.field("user") == expected)
    ia.drop_indexes(path, all=True)
    assert listed(ia.dataset(path).to_table(filter=pc.field("user") == expected)) == listed(before)


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    """The script, in a folder without files."""
    return Path(shutil.copy(HERE / "write_files.py", tmp_path))


def test_the_script_writes_what_is_read_here(elsewhere: Path) -> None:
    command = [sys.executable, str(elsewhere)]
    subprocess.run(command, check=True, timeout=600)
    written = elsewhere.parent / ia.__version__
    names = {path.name for path in written.iterdir()}
    assert names == {path.name for path in (HERE / ia.__version__).iterdir()}
    again = subprocess.run(command, check=False, capture_output=True, text=True, timeout=600)
    assert "written once" in again.stderr
