"""A sample of the mutants; ``make fuzz`` goes through 20,000 of them."""

import importlib.util
from pathlib import Path

import pytest

SAMPLE, SEED = 600, 20


def by_path(name):
    spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def run():
    return by_path("run")


def test_mutants_raise_our_errors_only_in_bounded_time_and_memory(run, corpus):
    files = sorted((corpus / "files").iterdir())
    report = run.run(run.draw(files, SAMPLE, SEED), processes=2)
    assert report.mutants == SAMPLE
    assert report.problems == []


def test_a_mutant_is_the_same_every_time():
    mutant = by_path("mutants").mutant
    data = bytes(range(256)) * 40
    mutants = [mutant(data, seed) for seed in range(100)]
    assert mutants == [mutant(data, seed) for seed in range(100)]
    assert len(set(mutants)) > 95
    assert data not in mutants
    assert mutant(b"", 1) == b""


def test_what_goes_wrong_with_one_mutant_is_told_and_the_rest_goes_on(run, tmp_path):
    whole = tmp_path / "whole.parquet"
    whole.write_bytes(b"PAR1 not a file PAR1")
    jobs = [f"{whole}\t1", f"{tmp_path / 'missing.parquet'}\t2", f"{whole}\t3"]
    report = run.run(jobs, processes=1)
    assert report.mutants == 3
    (problem,) = report.problems
    assert "missing.parquet" in problem
    assert "FileNotFoundError" in problem
