# Each of make demo, test, fast, versions, coverage, bench, bench-full, docs, fuzz and guided sets up
# .venv first; nothing else is needed but Python 3.11 or later.
PYTHON ?= python3
DATA ?= flights
SCALE ?= 1
BIN := .venv/bin

CORPUS ?= ../shared/corpus
MUTANTS ?= 20000
MINUTES ?= 10
PROCESSES ?= 2
# Files of tests/unit that start many processes or wait.
SLOW := advise bench catalog catalog_hostile changed_in_place cli cli_demo cli_errors \
	cli_inspect cli_pages cli_write crashed_workers distributions docs_site forks imports index_base \
	memory_limit notebook_run public_types redaction remote_writes replaced_files report \
	sidecar soak staleness storage_errors supported_versions text_indexes timeout

# Tests start hundreds of processes that import the package: it is compiled once.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test fast versions coverage check bench bench-full docs fuzz guided clean

demo: .venv/demo
	@$(BIN)/python examples/demo.py --data $(DATA) --scale $(SCALE)

test: .venv/test check
	@$(BIN)/python -m pytest --numprocesses $(PROCESSES)

# Most of tests/unit, in under two minutes.
fast: .venv/test
	@$(BIN)/python -m pytest --numprocesses $(PROCESSES) tests/unit \
		$(SLOW:%=--ignore=tests/unit/test_%.py)

# The folders of tests in pyproject.toml's tool.tox, on each Python from 3.11 to 3.14 that is on the
# PATH, and with the oldest packages; TOX="-e 3.13 -- tests/unit" chooses.
versions: .venv/versions
	@$(BIN)/tox $(TOX)

coverage: .venv/test
	@$(BIN)/python -m pytest --cov --cov-report=term

check: .venv/test
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

# Beside DuckDB, Polars, DataFusion and pyarrow, into build/bench; BENCH has options of the script.
# BENCH=--docs also writes docs/benchmark.md.
bench: .venv/bench
	@$(BIN)/python benchmarks/bench.py --memory $(BENCH)

bench-full: .venv/bench
	@$(BIN)/python benchmarks/bench.py --size full --memory $(BENCH)

# The documentation as a site: build/docs/index.html.
docs: .venv/docs
	@$(BIN)/python -m sphinx --fail-on-warning --quiet docs build/docs

# The long run: the test suite goes through a sample of as many mutants of the corpus's files.
fuzz: .venv/test
	@$(BIN)/python tests/fuzz/run.py $(CORPUS)/files --mutants $(MUTANTS)

# Guided by coverage, target by target; what it finds is printed.
guided: .venv/fuzz
	@$(BIN)/python tests/fuzz/guided.py --minutes $(MINUTES)

# One stamp an extra: rerun when the dependencies change.
.venv/%: pyproject.toml | .venv/bin/python
	@echo "Installing intarsia[$*] into .venv: a few minutes the first time"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[$*]'
	@touch $@

.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Python 3.11 or later is needed: make PYTHON=/path/to/python3.11 …"; exit 1; }
	@$(PYTHON) -m venv .venv

clean:
	rm -rf .venv .tox demo-data bench-data .coverage .hypothesis .mypy_cache .pytest_cache .ruff_cache
