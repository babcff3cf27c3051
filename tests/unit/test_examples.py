"""The examples in docstrings give what they say."""

import datetime as dt
import doctest
import importlib
import pkgutil

import pyarrow as pa
import pytest

import intarsia as ia
from intarsia.index import registry

SPARK = ("intarsia.spark", "intarsia.__main__")
MODULES = [
    module.name
    for module in pkgutil.walk_packages(ia.__path__, "intarsia.")
    if not module.name.startswith(SPARK)
]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A working directory with the files that examples use.

    ``logs.parquet`` has 1,000 rows and a ``lookup`` index of ``trace_id``. ``lake`` has the same
    rows in two files, ``lake/service=api/0.parquet`` and ``lake/service=web/0.parquet``, without
    indexes.
    """
    numbers = range(1000)
    table = pa.table(
        {
            "trace_id": [f"t{number}" for number in numbers],
            "ts": [dt.datetime(2026, 1, 1) + dt.timedelta(seconds=number) for number in numbers],
            "status": pa.array([500 if number % 10 == 7 else 200 for number in numbers], "int32"),
            "msg": [f"request {number} done" for number in numbers],
        }
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(registry, "_registered", dict(registry._registered))
    ia.write_table(table, "logs.parquet", indexes=[ia.Lookup("trace_id")])
    for part, service in enumerate(("api", "web")):
        (tmp_path / "lake" / f"service={service}").mkdir(parents=True)
        rows = table.slice(500 * part, 500)
        ia.write_table(rows, f"lake/service={service}/0.parquet")
    yield
    ia.set_memory_limit(None)


@pytest.mark.parametrize("name", MODULES)
def test_examples(name, request):
    module = importlib.import_module(name)
    tests = [test for test in doctest.DocTestFinder().find(module, name) if test.examples]
    if not tests:
        return
    request.getfixturevalue("folder")
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    for test in tests:
        test.globs.update(ia=ia, pa=pa)
        runner.run(test)
    assert runner.summarize(verbose=False).failed == 0
