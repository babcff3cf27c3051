"""Runs mutants through workers: ``python tests/fuzz/run.py FOLDER --mutants 20000``."""

import argparse
import os
import random
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

WORKER = Path(__file__).with_name("worker.py")
ENVIRONMENT = {
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "MALLOC_ARENA_MAX": "2",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
}
BATCH = 250
PATIENCE = 60
"""Seconds without output after which a worker counts as hanging."""
BIG = 1_000_000
"""Longer files are drawn seldom: they are few, and slow."""


@dataclass
class Report:
    """The number of mutants tried, and the failures by mutant."""

    mutants: int = 0
    problems: list[str] = field(default_factory=list)


def draw(files: list[Path], count: int, seed: int) -> list[str]:
    """``count`` pairs of a file and a seed, every file about as often as any other."""
    chance = random.Random(seed)
    weights = [0.1 if path.stat().st_size > BIG else 1 for path in files]
    drawn = chance.choices(files, weights=weights, k=count)
    return [f"{path}\t{chance.randrange(2**32)}" for path in drawn]


def run(jobs: list[str], processes: int) -> Report:
    """All ``jobs``, in batches of a process each."""
    report = Report()
    batches = [jobs[at : at + BATCH] for at in range(0, len(jobs), BATCH)]
    with ThreadPoolExecutor(processes) as pool:
        for actual in pool.map(run_batch, batches):
            report.mutants += actual.mutants
            report.problems += actual.problems
    return report


def run_batch(jobs: list[str]) -> Report:
    report = Report()
    while jobs:
        done, ending = run_worker(jobs)
        for job, outcome in zip(jobs, done, strict=False):
            if outcome != "ok":
                report.problems.append(f"{job}\t{outcome}")
        if ending:
            report.problems.append(f"{jobs[len(done)]}\t{ending}")
            done.append(ending)
        report.mutants += len(done)
        jobs = jobs[len(done) :]
    return report


def run_worker(jobs: list[str]) -> tuple[list[str], str]:
    """Returns the outcomes of finished jobs, and how the worker died on the next job, if it did."""
    command = [sys.executable, str(WORKER)]
    try:
        actual = subprocess.run(
            command,
            input="\n".join(jobs),
            capture_output=True,
            text=True,
            timeout=PATIENCE + len(jobs),
            env=os.environ | ENVIRONMENT,
            check=False,
        )
        output, ending = actual.stdout, f"died of {actual.returncode}" if actual.returncode else ""
    except subprocess.TimeoutExpired as error:
        output, ending = (error.stdout or b"").decode(), "hangs"
    done = [line.split("\t", 1)[1] for line in output.splitlines() if line.startswith("done")]
    return done, ending if len(done) < len(jobs) else ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="of Parquet files")
    parser.add_argument("--mutants", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    given = parser.parse_args()
    jobs = draw(sorted(given.folder.iterdir()), given.mutants, given.seed)
    report = run(jobs, given.processes)
    for problem in report.problems:
        print(problem)
    print(f"{report.mutants:,} mutants, {len(report.problems)} problems")
    sys.exit(bool(report.problems))


if __name__ == "__main__":
    main()
