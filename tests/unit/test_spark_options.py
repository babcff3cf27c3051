"""The table of options in the documentation of Spark has each argument, its default and setting."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import intarsia.spark as ias
from intarsia.spark.data_source import options as opts
from intarsia.spark.session_settings import PREFIX, SETTINGS

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "spark.md"
FUNCTIONS = (
    *("read", "write", "optimize", "maintain"),
    *("build_catalog", "add_indexes", "drop_indexes"),
)


def cells_of(count):
    """Returns the cells of each row with ``count`` cells that begins with an option."""
    table = PAGE.read_text().partition("## Options")[2].partition("\n## ")[0]
    for line in table.splitlines():
        cells = [cell.strip() for cell in line.split("|")[1:-1]]
        if len(cells) == count and cells[0].startswith("`"):
            yield cells


def rows():
    """Returns the option, the functions, the default and the setting of each row."""
    for cells in cells_of(6):
        functions = FUNCTIONS if cells[1] == "all" else re.findall(r"`(\w+)`", cells[1])
        yield cells[0].strip("`"), functions, cells[3].strip("`"), cells[4].strip("`")


def test_the_table_has_every_argument_with_its_default():
    documented = {
        (function, option): default
        for option, functions, default, _ in rows()
        for function in functions
    }
    actual = {
        (function, name): repr(parameter.default)
        for function in FUNCTIONS
        for name, parameter in inspect.signature(getattr(ias, function)).parameters.items()
        if parameter.default is not inspect.Parameter.empty
    }
    assert documented == actual


def test_the_table_has_every_setting():
    settings = {setting: option for option, _, _, setting in rows() if setting.startswith(PREFIX)}
    assert settings == {PREFIX + name: name for name in SETTINGS}


def test_the_table_of_the_format_has_every_option():
    documented = {name for option, *_ in cells_of(5) for name in re.findall(r"`([\w-]+)`", option)}
    own_names = {opts._SPARK_NAMES.get(name.lower(), name) for name in documented}
    snapshots = {name for names in opts._SNAPSHOT_OPTIONS.values() for name in names}
    reads = {*opts._READ_OPTIONS, *opts._FILE_OPTIONS, *opts._STREAM_OPTIONS, *snapshots}
    assert own_names == {*reads, *opts._WRITE_OPTIONS, "time_zone"}
    shown = {name.replace("-", "").lower() for name in documented}
    assert {name.replace("-", "") for name in opts._SPARK_NAMES} <= shown
