"""The documentation has every option: of functions, of Spark's format, of policies, of processes.

``test_docs_site`` has the options of commands, and ``test_spark_options`` the settings of sessions.
"""

from __future__ import annotations

import enum
import inspect
import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import intarsia
import intarsia.spark  # a name of ``intarsia`` below
from intarsia.indexing.policy import Policy
from intarsia.spark.data_source import options as format_options

CHECKOUT = Path(__file__).parents[2]
DOCS = CHECKOUT / "docs"


def public_callables() -> dict[str, Callable[..., Any]]:
    """Returns the functions, classes and methods of the reference, by full name."""
    pages = "\n".join(page.read_text() for page in sorted(DOCS.glob("reference/python/*.md")))
    excluded = re.findall(r"\w+", " ".join(re.findall(r":exclude-members: (.*)", pages)))
    callables = {}
    for name in re.findall(r"^\.\. auto(?:function|class):: intarsia\.(\S+)$", pages, re.MULTILINE):
        value: Any = intarsia
        for part in name.split("."):
            value = getattr(value, part)
        callables[name] = value
        if inspect.isclass(value):
            callables |= {
                f"{name}.{method}": getattr(value, method)
                for method in vars(value)
                if not method.startswith("_")
                and method not in excluded
                and inspect.isroutine(getattr(value, method))
            }
    return callables


CALLABLES = public_callables()


def parameters_in(docstring: str) -> set[str]:
    """Returns the names that a docstring lists, and those that it has in backticks."""
    listed = re.findall(r"^([\w*][\w*, ]*)(?: : |$)", docstring, re.MULTILINE)
    quoted = re.findall(r"``[^`]*``", docstring)
    return {*re.findall(r"\w+", " ".join(listed + quoted))}


def test_each_option_of_a_function_is_in_its_docstring_or_in_one_that_it_names():
    documented = defaultdict(set)
    for name, value in CALLABLES.items():
        documented[name.rpartition(".")[2]] |= parameters_in(inspect.getdoc(value) or "")
    count = 0
    for name, value in CALLABLES.items():
        own = parameters_in(inspect.getdoc(value) or "")
        named = set[str]().union(own, *(documented[word] for word in own if word in documented))
        options = options_of(value)
        assert options <= named, f"{name} does not say what {options - named} mean"
        count += len(options)
    assert count > 300


def options_of(value: Callable[..., Any]) -> set[str]:
    """Returns the parameters with a default."""
    if inspect.isclass(value) and issubclass(value, enum.Enum):
        return set()
    parameters = inspect.signature(value).parameters.values()
    return {one.name for one in parameters if one.default is not inspect.Parameter.empty}


def variables_in_code() -> Iterator[str]:
    for module in CHECKOUT.glob("src/**/*.py"):
        text = module.read_text()
        yield from re.findall(r'"(INTARSIA_[A-Z_]+)"', text)
        yield from re.findall(r'environ(?:\.\w+\(|\[)"([A-Z_]+)"', text)
        yield from re.findall(r'"([A-Z_]+)" in os\.environ', text)
    yield "TMPDIR"  # of Python's tempfile


TABLES = {
    "policy": (Policy.__dataclass_fields__, "how-to/keep-a-lake-indexed.md", "The policy"),
    "environment": (variables_in_code(), "reference/command-line.md", "Environment variables"),
}


@pytest.mark.parametrize("kind", TABLES)
def test_a_table_has_exactly_the_options_of_the_code(kind):
    names, page, heading = TABLES[kind]
    section = (DOCS / page).read_text().partition(f"## {heading}\n")[2].partition("\n## ")[0]
    assert {*re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)} == {*names}


def test_the_layout_of_a_policy_is_documented():
    text = (DOCS / "how-to/keep-a-lake-indexed.md").read_text()
    layout = next(line for line in text.splitlines() if line.startswith("| `layout` |"))
    assert {*re.findall(r"`(\w+)`", layout)} >= {"rows_per_page", "row_group_rows", "compression"}


def test_each_option_of_the_format_of_spark_is_documented():
    text = (DOCS / "how-to/spark.md").read_text()
    quoted = {code.lower() for code in re.findall(r"`([^`\n]+)`", text)}
    names = {
        name
        for group, value in vars(format_options).items()
        if re.fullmatch(r"_(WRITE|READ|FILE|STREAM)_OPTIONS", group)
        for name in value
    }
    names |= {name for group in format_options._SNAPSHOT_OPTIONS.values() for name in group}
    assert len(names) > 15
    for name in names:
        aliases = {key for key, value in format_options._SPARK_NAMES.items() if value == name}
        assert quoted & {name, *aliases}, name
