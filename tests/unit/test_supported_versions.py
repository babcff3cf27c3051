"""Versions of pyarrow, DuckDB and Polars that are not tested are refused."""

import itertools
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import duckdb
import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import intarsia as ia
from intarsia.errors import OLDEST, check_version

PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
WITH_ANOTHER_PYARROW = "import pyarrow; pyarrow.__version__ = '27.0.0.dev3'\n"
DO_NOT_READ = {  # these only describe or name things, and do not use files
    "Advice",
    "CorruptData",
    "CorruptDataWarning",
    "Finding",
    "FormatError",
    "IndexSpecError",
    "IntarsiaError",
    "IntarsiaWarning",
    "MissingDependencyError",
    "OutOfMemoryError",
    "PathError",
    "PredicateError",
    "QueryTimeoutError",
    "RowRanges",
    "Severity",
    "UnsupportedError",
    "__version__",
    "memory_limit",
    "set_memory_limit",
}


def python(program, *arguments):
    command = [sys.executable, "-c", WITH_ANOTHER_PYARROW + program, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=600)


@pytest.mark.parametrize("package", OLDEST)
def test_the_versions_are_those_that_can_be_installed(package):
    lists = (PROJECT["dependencies"], *PROJECT["optional-dependencies"].values())
    bounds = {line for line in itertools.chain(*lists) if re.match(rf"{package}\b", line)}
    assert bounds == {f"{package}>={OLDEST[package]},<{int(OLDEST[package].split('.')[0]) + 1}"}


def test_nothing_that_reads_files_works_with_another_pyarrow():
    program = """
import intarsia
for name in intarsia.__all__:
    try:
        getattr(intarsia, name)
    except intarsia.MissingDependencyError as error:
        assert str(error) == (
            "pyarrow 27.0.0.dev3 is not supported: install pyarrow>=26,<27"
        )
    else:
        print(name)
"""
    done = python(program)
    assert done.returncode == 0, done.stderr
    assert {*done.stdout.split()} == DO_NOT_READ


def test_a_command_names_the_version_that_it_needs(tmp_path):
    pq.write_table(pa.table({"k": [1]}), tmp_path / "t.parquet")
    run = "import sys; sys.argv[0] = 'intarsia'; from intarsia.cli import main; main()"
    done = python(run, "verify", tmp_path / "t.parquet")
    assert done.returncode == 1
    assert done.stderr.startswith("intarsia: pyarrow 27.0.0.dev3 is not supported: install pyarrow")
    assert done.stderr.count("\n") == 1


def test_another_duckdb_or_polars_is_refused(tmp_path, monkeypatch):
    pq.write_table(pa.table({"k": [1]}), tmp_path / "t.parquet")
    data = ia.dataset(tmp_path)
    monkeypatch.setattr(duckdb, "__version__", "3.0.1")
    with pytest.raises(
        ia.MissingDependencyError, match=r"duckdb 3\.0\.1 is not .*duckdb>=2\.0\.1,<3"
    ):
        ia.sql("SELECT * FROM d", d=data)
    monkeypatch.setattr(polars, "__version__", "1.44.2")
    with pytest.raises(
        ia.MissingDependencyError, match=r"polars 1\.44\.2 is not .*polars>=2\.1,<3"
    ):
        ia.polars.scan(data)


@pytest.mark.parametrize(
    ("version", "is_supported"),
    [
        ("2.0.0", False),
        ("2.0.1", True),
        ("2.0.1.dev2610211350", True),
        ("2.1.0rc1+g1a2b3c", True),
        ("2.10", True),
        ("1.9.9", False),
        ("3.0.0.dev1", False),
        ("20.0.1", False),
    ],
)
def test_later_versions_of_the_same_major_are_supported(version, is_supported, monkeypatch):
    monkeypatch.setattr(duckdb, "__version__", version)
    if is_supported:
        return check_version(duckdb)
    with pytest.raises(ia.MissingDependencyError, match=re.escape(f"duckdb {version} is not")):
        check_version(duckdb)
