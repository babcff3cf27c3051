"""Names are imported on first use, and importing the package loads little else."""

import ast
import functools
import importlib
import inspect
import json
import os
import pickle
import subprocess
import sys
from pathlib import Path

import click
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import intarsia as ia
from intarsia import kind_names
from intarsia.cli import options
from intarsia.cli.command_line import cli
from intarsia.cli.input import other_formats
from intarsia.dataset.discovery import dataset
from intarsia.index import registry

HEAVY = {"numpy", "pyarrow", "pandas", "sqlglot", "duckdb", "polars", "pyspark", "thrift", "jinja2"}
MOST_MODULES = 60  # modules, standard library included; once there were 983
MOST_COMMAND_MODULES = 180  # of which click and the standard library are most; there were 983
INIT = Path(ia.__file__)


def printed(program, *arguments):
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONWARNINGS"}
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        capture_output=True,
        text=True,
        timeout=600,
        env=environment,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def modules_after(program):
    """The modules that a program imports in addition to those of a starting Python."""
    code = f"import sys; before = set(sys.modules)\n{program}\n"
    code += "import json; print('\\n' + json.dumps(sorted({*sys.modules} - before)))"
    return set(json.loads(printed(code).splitlines()[-1]))


def command(*arguments):
    return (
        f"import sys; sys.argv = ['intarsia', *{arguments!r}]\n"
        "from intarsia.cli import main\n"
        "try: main()\n"
        "except SystemExit as end: assert not end.code"
    )


def roots(modules):
    return {module.split(".")[0] for module in modules}


def test_importing_the_package_imports_next_to_nothing():
    actual = modules_after("import intarsia")
    assert not roots(actual) & HEAVY
    assert {name for name in actual if name.startswith("intarsia.")} == {
        "intarsia.process_state",
        "intarsia.version",
    }
    assert len(actual) <= MOST_MODULES


def commands_of(group, *names):
    """The arguments that call each command, groups included."""
    yield names
    if isinstance(group, click.Group):
        for name, command in group.commands.items():
            yield from commands_of(command, *names, name)


@pytest.mark.parametrize(
    "arguments",
    [("--version",), ("-h",), *((*names, "--help") for names in commands_of(cli))],
    ids=" ".join,
)
def test_version_and_the_help_of_every_command_import_nothing_heavy(arguments):
    actual = modules_after(command(*arguments))
    assert not roots(actual) & HEAVY
    assert len(actual) <= MOST_COMMAND_MODULES


def test_a_command_imports_the_work_of_no_other(tmp_path):
    pq.write_table(pa.table({"k": [1]}), tmp_path / "a.parquet")
    actual = modules_after(command("catalog", "build", str(tmp_path)))
    assert "intarsia.cli.actions.catalog" in actual
    assert (
        not {"intarsia.cli.actions.write", "intarsia.cli.actions.demo", "duckdb", "polars"} & actual
    )


def test_every_command_has_a_function_that_takes_its_options():
    for names in commands_of(cli):
        actual = functools.reduce(lambda group, name: group.commands[name], names, cli)
        if not isinstance(actual, click.Group):
            module = importlib.import_module(
                actual.callback.__module__.replace(".commands", ".actions")
            )
            taken = inspect.signature(getattr(module, actual.callback.__name__)).parameters
            given = {option.name for option in actual.params if option.expose_value}
            by_name = {*taken} - {"opening"}
            assert by_name <= given, names
            opening = {*inspect.signature(dataset).parameters} if "opening" in taken else set()
            assert given - by_name <= opening, names


def test_the_names_of_kinds_equal_those_of_the_registry():
    assert sorted({*registry._BUILT_IN, *registry._STANDARD}) == [*kind_names.BUILT_IN]
    assert [*other_formats._EXTENSIONS] == [*options.FORMATS]


def test_the_table_the_imports_for_checkers_and_all_agree():
    tree = ast.parse(INIT.read_text())
    (block,) = (
        node
        for node in tree.body
        if isinstance(node, ast.If) and "not" not in ast.unparse(node.test)
    )
    for_checkers = {(node.module, name.name) for node in block.body for name in node.names}
    assert for_checkers == {(module, name) for name, module in ia._MODULE_OF.items()}
    assert sorted([*ia._MODULE_OF, "__version__"]) == ia.__all__


@pytest.mark.parametrize("name", [name for name in ia.__all__ if name != "__version__"])
def test_each_name_is_that_of_its_module(name):
    module = importlib.import_module(ia._MODULE_OF[name])
    actual = getattr(ia, name)
    assert actual is getattr(module, name)
    assert actual is getattr(ia, name)  # from the namespace, the second time


def test_names_do_not_change_however_modules_are_imported():
    """The import system binds packages to their parent, for example ``intarsia.verify``."""
    program = """
import importlib, pkgutil, sys, types
import intarsia.verify.finding, intarsia.verify.file, intarsia.index.registry
import intarsia
from intarsia import verify, polars
assert isinstance(verify, types.FunctionType) and intarsia.verify is verify
for found in pkgutil.walk_packages(intarsia.__path__, "intarsia."):
    if found.name.split(".")[1] not in ("spark", "testing", "__main__"):
        importlib.import_module(found.name)
for name, module in intarsia._MODULE_OF.items():
    assert getattr(intarsia, name) is getattr(sys.modules[module], name), name
importlib.reload(intarsia)
assert intarsia.verify is verify
"""
    printed(program)


@pytest.mark.parametrize(
    "use",
    [
        "ia.polars.scan",
        "ia.index.Inverted",
        "ia.errors.FormatError",
        "ia.io.storage.FileSource",
        "ia.scan.parquet_file.open_file",
        "ia.engines.polars.scan",
        "ia.dataset.__code__",
        "ia.sql.__code__",
        "ia.spark.write",
        "ia.report.query_html",
        "ia.testing.CountingSource",
        "ia.verify.__code__",
        "ia.__version__",
    ],
)
def test_parts_are_attributes_without_further_imports(use):
    assert printed(f"import intarsia as ia; print({use})").strip()


def test_a_missing_name_is_an_attribute_error():
    for name in ("datset", "_nothing", "__wrapped__"):
        with pytest.raises(AttributeError, match=f"'intarsia' has no attribute '{name}'"):
            getattr(ia, name)
    with pytest.raises(ImportError, match="datset"):
        exec("from intarsia import datset")


def test_a_star_import_gives_all_public_names():
    namespace = {}
    exec("from intarsia import *", namespace)
    assert {*ia.__all__} == namespace.keys() - {"__builtins__"}


def test_pickles_are_read_before_any_import():
    index = ia.Lookup("trace_id")
    program = "import pickle, sys; print(repr(pickle.loads(bytes.fromhex(sys.argv[1]))))"
    assert printed(program, pickle.dumps(index).hex()).strip() == repr(index)
    function = pickle.dumps(ia.add_indexes).hex()
    assert "add_indexes" in printed(program, function)


def test_concurrent_first_uses_get_the_same_object():
    program = """
import random, sys, threading
import intarsia
sys.setswitchinterval(1e-5)
start, found = threading.Barrier(8), []
def ask(seed):
    names = [name for name in intarsia.__all__]
    random.Random(seed).shuffle(names)
    start.wait()
    found.append({name: id(getattr(intarsia, name)) for name in names})
threads = [threading.Thread(target=ask, args=(seed,)) for seed in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join(60)
assert len(found) == 8 and all(one == found[0] for one in found)
"""
    printed(program)


def test_a_fork_during_a_first_use_does_not_block_the_child():
    program = """
import os, signal, sys, threading, time
import intarsia
thread = threading.Thread(target=lambda: intarsia.dataset)
thread.start()
while "intarsia.dataset.discovery" not in sys.modules: time.sleep(0)
assert "intarsia.engines" not in sys.modules
child = os.fork()
if not child:
    signal.alarm(30)  # what waits for ever is killed
    os._exit(0 if callable(intarsia.dataset) and callable(intarsia.sql) else 1)
assert os.waitpid(child, 0)[1] == 0
thread.join()
"""
    printed(program)


@pytest.mark.parametrize(
    "uses",
    [
        ("intarsia.sql", "import intarsia.dataset.dataset"),
        ("intarsia.dataset", "import intarsia.testing"),
        ("intarsia.verify", "import intarsia.sql.where_clause"),
    ],
    ids=" beside ".join,
)
def test_first_uses_and_imports_of_modules_do_not_block_each_other(uses):
    program = f"""
import faulthandler, threading
faulthandler.dump_traceback_later(60, exit=True)
import intarsia
start = threading.Barrier(2)
def run(use):
    start.wait()
    exec(use, {{"intarsia": intarsia}})
threads = [threading.Thread(target=run, args=(use,)) for use in {uses!r}]
for thread in threads: thread.start()
for thread in threads: thread.join()
assert all(callable(getattr(intarsia, name)) for name in ("dataset", "sql", "verify"))
"""
    for _ in range(3):
        printed(program)


def test_a_function_hides_the_package_of_its_name_after_a_reload():
    printed(
        "import importlib, intarsia, intarsia.sql.scope\n"
        "importlib.reload(intarsia)\n"
        "assert callable(intarsia.sql) and callable(intarsia.dataset)"
    )
