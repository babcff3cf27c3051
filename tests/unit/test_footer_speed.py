import importlib.util
from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def benchmark():
    path = Path(__file__).parents[2] / "benchmarks" / "footer.py"
    spec = importlib.util.spec_from_file_location("footer", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_wide_footer_takes_at_most_three_times_as_long_as_pyarrow(benchmark, tmp_path):
    benchmark.write(tmp_path / "wide.parquet", 2000, 10)
    found = benchmark.compare(tmp_path / "wide.parquet", runs=9)
    assert min(ours for _, ours in found) <= 3 * min(theirs for theirs, _ in found)


def test_an_ordinary_footer_takes_at_most_two_milliseconds(benchmark, tmp_path):
    benchmark.write(tmp_path / "ordinary.parquet", 20, 10)
    found = benchmark.compare(tmp_path / "ordinary.parquet", runs=50)
    assert min(ours for _, ours in found) <= 0.002
