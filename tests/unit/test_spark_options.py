"""The table of options in the documentation of Spark has each argument, its default and setting."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import intarsia.spark as ias
from intarsia.spark.session_settings import PREFIX, SETTINGS

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "spark.md"
FUNCTIONS = (
    *("read", "write", "optimize", "maintain"),
    *("build_catalog", "add_indexes", "drop_indexes"),
)


def rows():
    """Returns the option, the functions, the default and the setting of each row."""
    table = PAGE.read_text().partition("## Options")[2].partition("\n## ")[0]
    for line in table.splitlines():
        cells = [cell.strip() for cell in line.split("|")[1:-1]]
        if len(cells) == 6 and cells[0].startswith("`"):
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
