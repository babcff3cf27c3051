"""A sample of the mutants; ``make fuzz`` runs 20,000 of them."""

from pathlib import Path

import pytest
import run
import targets
from mutants import mutant

SAMPLE, SEED = 600, 20


def test_mutants_raise_our_errors_only_in_bounded_time_and_memory(corpus):
    files = sorted((corpus / "files").iterdir())
    report = run.run(run.draw(files, SAMPLE, SEED), processes=2)
    assert report.mutants == SAMPLE
    assert report.problems == []


def test_a_mutant_is_the_same_every_time():
    data = bytes(range(256)) * 40
    mutants = [mutant(data, seed) for seed in range(100)]
    assert mutants == [mutant(data, seed) for seed in range(100)]
    assert len(set(mutants)) > 95
    assert data not in mutants
    assert mutant(b"", 1) == b""


def test_a_failing_mutant_is_reported_and_the_others_run(tmp_path):
    whole = tmp_path / "whole.parquet"
    whole.write_bytes(b"PAR1 not a file PAR1")
    jobs = [f"{whole}\t1", f"{tmp_path / 'missing.parquet'}\t2", f"{whole}\t3"]
    report = run.run(jobs, processes=1)
    assert report.mutants == 3
    (problem,) = report.problems
    assert "missing.parquet" in problem
    assert "FileNotFoundError" in problem


# --- the targets of the guided fuzzer, without guidance -------------------------------------------

SEEDS = Path(__file__).with_name("seeds")
MUTANTS_EACH = 12


def test_every_target_has_seeds_and_they_are_small():
    assert {path.name for path in SEEDS.iterdir()} == set(targets.TARGETS)
    assert sum(path.stat().st_size for path in SEEDS.rglob("*") if path.is_file()) < 200_000


SEED_FILES = sorted(path.relative_to(SEEDS).as_posix() for path in SEEDS.rglob("*/*"))


@pytest.mark.parametrize("seed", SEED_FILES)
def test_targets_take_seeds_and_their_mutants(seed):
    data = (SEEDS / seed).read_bytes()
    for number in range(MUTANTS_EACH):
        targets.attempt(seed.split("/")[0], mutant(data, number) if number else data)


@pytest.mark.parametrize("seed", [seed for seed in SEED_FILES if seed.startswith("section/")])
def test_seeds_of_sections_are_sections(seed):
    """Otherwise mutants of them would be refused by the first check."""
    opened = []
    for shape in ("InvertedSection", "SummarySection"):
        make = getattr(targets, shape)

        def watched(*place, make=make, **options):
            actual = make(*place, **options)
            opened.append(actual)
            return actual

        setattr(targets, shape, watched)
        try:
            targets.attempt("section", (SEEDS / seed).read_bytes())
        finally:
            setattr(targets, shape, make)
    assert opened


@pytest.mark.parametrize("seed", [seed for seed in SEED_FILES if seed.startswith("catalog/")])
@pytest.mark.parametrize("ask", range(8))
def test_seeds_of_catalogs_are_catalogs(seed, ask, monkeypatch):
    answers = []
    for name in ("might_match", "tail", "covered"):
        real = getattr(targets.SegmentReader, name)

        def watched(*arguments, real=real):
            answers.append(real(*arguments))
            return answers[-1]

        monkeypatch.setattr(targets.SegmentReader, name, watched)
    targets.catalog(bytes([ask]) + (SEEDS / seed).read_bytes()[1:])
    assert answers or (4 <= ask < 7 and seed == "catalog/plain")  # has no index
