"""Text, tables and progress that fit a terminal: numbers are never cut, text by an ellipsis."""

from __future__ import annotations

import contextlib
import os
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import click
from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.markup import escape
from rich.progress import Progress

from intarsia.parquet.value_display import clean as clean
from intarsia.parquet.value_display import escaped as escaped
from intarsia.parquet.value_display import plural as plural

console = Console(highlight=False, soft_wrap=True)
errors = Console(stderr=True)
for _made in (console, errors):
    if not _made.width:  # COLUMNS=0: not known
        _made.width = 80
Update = Callable[[str, int, int | None], None]
"""Reports progress: the current item, how much is done, and the total or None if unknown."""
NONE = "-"
"""An empty cell."""
_GAP = 2
_INDENT = 2


def lines(report: object) -> None:
    """Prints the text of a report without control characters."""
    for line in str(report).splitlines():
        click.echo(clean(line))


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table. Columns with the highest ``rank`` are left out first."""

    title: str
    cells: Sequence[str]
    rank: int = 0
    right: bool = False
    least: int | None = None
    """The least width that cells may be cut to, in characters. None if they may not be cut."""
    middle: bool = False
    """True if cells are cut in the middle, as suits names."""

    @property
    def width(self) -> int:
        return max(cell_len(text) for text in (self.title, *self.cells))

    @property
    def least_width(self) -> int:
        if self.least is None:
            return self.width
        return min(self.width, max(self.least, len(self.title)))

    @property
    def is_blank(self) -> bool:
        return all(cell == NONE for cell in self.cells)

    def fitted(self, text: str, width: int) -> str:
        """Returns ``text`` in exactly ``width`` characters of the terminal."""
        shown = cut(text, width, middle=self.middle)
        padding = " " * (width - cell_len(shown))
        return padding + shown if self.right else shown + padding


def numbers(title: str, values: Iterable[int | None], rank: int = 0) -> Column:
    """Returns a column of integers."""
    return Column(title, [number(value) for value in values], rank, right=True)


def say(text: str = "", style: str | None = None) -> None:
    """Prints one line or several as they are."""
    console.print(text, style=style, markup=False)


def paragraph(text: str) -> None:
    """Prints a sentence, broken between words."""
    margin = " " * _INDENT
    available = max(console.width, 20)
    say(textwrap.fill(text, available, initial_indent=margin, subsequent_indent=margin + "  "))


def line(text: str, *, middle: bool = False, style: str | None = None) -> None:
    """Prints one line, cut if it is too long."""
    say(cut(text, console.width, middle=middle), style)


def table(columns: Iterable[Column]) -> list[str]:
    """Prints a table of the columns that fit. Returns the titles of the others.

    Columns without any value are left out first, and their titles are not returned.
    """
    columns = list(columns)
    widths = _widths(columns, _table_width())
    _print([(column, widths[column.title]) for column in columns if column.title in widths])
    return [c.title for c in columns if c.title not in widths and not c.is_blank]


def whole_table(columns: Sequence[Column]) -> None:
    """Prints a whole table. If it is too wide, prints a line for each cell of each row."""
    if _total(column.width for column in columns) <= _table_width():
        _print([(column, column.width) for column in columns])
        return
    titles = Column("", [column.title for column in columns])
    for number, row in enumerate(zip(*(column.cells for column in columns), strict=True), 1):
        say(_row([f"row {number}"]), "bold")
        for title, cell in zip(titles.cells, row, strict=True):
            say(_row([titles.fitted(title, titles.width), cell]))


def tables(key: Column, parts: Sequence[Sequence[Column]]) -> list[str]:
    """Prints one table of all parts if it fits, else one of each. ``key`` comes first."""
    whole = [key, *(column for part in parts for column in part)]
    if _total(column.width for column in whole) <= _table_width():
        return table(whole)
    hidden = []
    for part in parts:
        if part is not parts[0]:
            say()
        hidden += table([key, *part])
    return hidden


def more(count: int, noun: str) -> None:
    """Prints that ``count`` more things are not shown, if any."""
    if count:
        paragraph(f"… and {plural(count, noun)}: --all shows them.")


def left_out(titles: Iterable[str]) -> None:
    """Prints which columns did not fit, if any."""
    titles = list(dict.fromkeys(titles))
    if titles:
        paragraph(f"No room here for: {', '.join(titles)}.")


def cut(text: str, width: int, *, middle: bool = False) -> str:
    """Returns ``text`` in at most ``width`` characters of the terminal, with an ellipsis if cut."""
    if cell_len(text) <= width:
        return text
    available = max(width - 1, 0)
    tail = available // 2 if middle else 0
    head = set_cell_size(text, available - tail)
    return f"{head}…{set_cell_size(text[::-1], tail)[::-1]}"


def number(value: int | None) -> str:
    """Returns an integer with separators."""
    return NONE if value is None else f"{value:,}"


def _table_width() -> int:
    """Returns the width of tables in characters. It is unlimited if a program reads them."""
    is_known = console.is_terminal or "COLUMNS" in os.environ
    return console.width - _INDENT if is_known else sys.maxsize


def _print(shown: Sequence[tuple[Column, int]]) -> None:
    """Prints columns in their widths."""
    say(_row(column.fitted(column.title, width) for column, width in shown), "bold")
    rows = zip(*([column.fitted(c, w) for c in column.cells] for column, w in shown), strict=True)
    text = "\n".join(_row(cells) for cells in rows)
    if text:
        say(text)


def _row(cells: Iterable[str]) -> str:
    return (" " * _INDENT + (" " * _GAP).join(cells)).rstrip()


def _total(widths: Iterable[int]) -> int:
    widths = list(widths)
    return sum(widths) + _GAP * (len(widths) - 1)


def _widths(columns: Sequence[Column], available: int) -> dict[str, int]:
    """Returns the width of each column that is shown, by its title."""
    first, *others = columns
    widths = {first.title: first.least_width}
    chosen = [first]
    for column in sorted(others, key=lambda column: (column.is_blank, column.rank)):
        if _total([*widths.values(), column.least_width]) <= available:
            widths[column.title] = column.least_width
            chosen.append(column)
    spare = available - _total(widths.values())
    wanting = sorted(chosen, key=lambda column: column.width - column.least_width)
    for i, column in enumerate(
        wanting
    ):  # columns that need little first, so that no width is wasted
        more = min(column.width - column.least_width, max(spare, 0) // (len(wanting) - i))
        widths[column.title] += more
        spare -= more
    return widths


@contextlib.contextmanager
def progress(doing: str) -> Iterator[Update]:
    """Shows a progress bar on stderr if that is a terminal."""
    quiet = not errors.is_terminal
    with Progress(console=errors, transient=True, disable=quiet) as bar:
        task = bar.add_task(doing, total=None)

        def update(file: str, done: int, total: int | None) -> None:
            shown = escape(clean(file))
            bar.update(task, description=f"{doing} {shown}", completed=done, total=total)

        yield update
