"""A coverage-guided fuzzer with atheris: ``python tests/fuzz/guided.py --minutes 10``.

Each target of ``targets.py`` gets its own process and an equal share of the time. Inputs that fail
are kept in a folder, one file each; the script prints its path. ``--again FILE --only TARGET`` runs
one of them. ``--corpus`` keeps the inputs that cover new code for the next run.
"""

import argparse
import re
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
SEEDS = HERE / "seeds"
LONGEST = 1 << 16
SECONDS_EACH = 10
"""Time limit of one input, in seconds."""
MEMORY_MB = 1024


def fuzz(target, arguments):
    """Runs the fuzzer in its own process, which libFuzzer ends."""
    import atheris  # the extra ``fuzz``

    with atheris.instrument_imports(include=["intarsia"], enable_loader_override=False):
        import targets
    atheris.Setup([sys.argv[0], *arguments], lambda data: targets.attempt(target, data))
    atheris.Fuzz()


def run(target, seconds, corpus, found):
    """Returns the number of executions of one target, and the inputs it failed on."""
    learned = corpus / target
    learned.mkdir(parents=True, exist_ok=True)
    prefix = found / f"{target}-"
    command = [
        *(sys.executable, __file__, "--worker", target, f"-max_total_time={seconds}"),
        *(f"-artifact_prefix={prefix}", f"-timeout={SECONDS_EACH}", f"-rss_limit_mb={MEMORY_MB}"),
        *(f"-max_len={LONGEST}", "-print_final_stats=1", "-verbosity=1", "-len_control=0"),
        *(str(learned), str(SEEDS / target)),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, errors="replace")
    said = done.stderr + done.stdout
    counted = re.search(r"stat::number_of_executed_units:\s+(\d+)", said)
    problems = sorted(found.glob(f"{target}-*"))
    if done.returncode and not problems:
        problems = [found / f"{target}-died-of-{done.returncode}"]
    if done.returncode:
        problems[0].with_suffix(".log").write_text(said[-20_000:])
        problems = [path for path in problems if path.suffix != ".log"]
    return int(counted[1]) if counted else 0, problems


def main():
    if sys.argv[1:2] == ["--worker"]:
        fuzz(sys.argv[2], sys.argv[3:])
        return
    parser = argparse.ArgumentParser(description=__doc__)
    names = sorted(path.name for path in SEEDS.iterdir())
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--only", choices=names, action="append")
    parser.add_argument("--corpus", type=Path, help="a folder of what was learned; else forgotten")
    parser.add_argument("--again", type=Path, help="an input that failed; needs --only")
    given = parser.parse_args()
    chosen = given.only or names
    if given.again:
        import targets

        targets.attempt(chosen[0], given.again.read_bytes())
        print("nothing went wrong")
        return
    actual = Path(tempfile.mkdtemp(prefix="fuzz-"))
    corpus = given.corpus or Path(tempfile.mkdtemp(prefix="fuzz-corpus-"))
    seconds = max(1, round(given.minutes * 60 / len(chosen)))
    total, failures = 0, []
    for target in chosen:
        executions, problems = run(target, seconds, corpus, actual)
        total += executions
        failures += problems
        print(f"{target:12} {executions:>12,} executions, {len(problems)} problems", flush=True)
    for problem in failures:
        print(problem)
    print(f"{total:,} executions, {len(failures)} problems")
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
