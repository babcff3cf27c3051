"""``intarsia demo``: a table is made, written with indexes, and asked; no network, no Spark."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

import pyarrow.fs as pafs

from intarsia.cli.demo.log_table import write_logs
from intarsia.cli.demo.queries import Answer, answers, questions
from intarsia.cli.output import terminal
from intarsia.cli.output.terminal import Column
from intarsia.errors import PathError
from intarsia.indexing.add import list_indexes
from intarsia.io.storage import resolve
from intarsia.plan.explain_text import of

_FILE = "logs.parquet"


def demo(folder: str, rows: int) -> None:
    """Write a table with indexes to a folder, and ask it five questions."""
    path = _place(folder)
    with terminal.progress("writing") as update:
        row = write_logs(path, rows, update)
    (report,) = list_indexes(path)
    names = ", ".join(entry.name for entry in report.indexes)
    terminal.say(
        f"{path}: {terminal.plural(report.rows, 'row')}, {report.file_bytes:,} bytes, "
        f"with page indexes and {names}"
    )
    asked = questions(row)
    with terminal.progress("asking") as update:
        found = list(answers(path, asked, update))
    terminal.say()
    for question in asked:
        terminal.say(f"{question.title}: {question.where}")
    terminal.say()
    _table(found)
    terminal.say()
    wrong = sum(not answer.is_equal for answer in found)
    if wrong:
        terminal.say(f"{wrong} of {len(found)} answers differ from brute force")
        sys.exit(1)
    _farewell(path, found)


def _place(folder: str) -> Path:
    """Where the file is to be, in a folder that is made where it is not there."""
    on, place = resolve(folder)
    if not isinstance(on, pafs.LocalFileSystem):
        raise PathError(f"{folder}: files are written to local folders only")
    path = Path(place if "://" in folder else folder, _FILE)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise PathError(f"{folder}: there can be no such folder: {error.strerror}") from error
    return path


def _table(found: Sequence[Answer]) -> None:
    """Rows and what reading them took, of the whole."""
    reads = [answer.read for answer in found]
    columns = [
        Column("question", [answer.question.title for answer in found]),
        terminal.numbers("rows", [answer.rows for answer in found]),
        Column("as brute force", ["yes" if answer.is_equal else "NO" for answer in found]),
        Column("pages", [of(read.pages) for read in reads], right=True),
        Column("bytes", [of(read.bytes) for read in reads], right=True),
        Column(
            "times less",
            [_less(read.bytes.selected, read.bytes.total) for read in reads],
            right=True,
        ),
    ]
    terminal.whole_table(columns)


def _less(part: int, whole: int) -> str:
    return f"{whole / max(part, 1):,.1f}"


def _farewell(path: Path, found: Sequence[Answer]) -> None:
    """Where the file is, and commands to go on with."""
    shown = str(path)
    file = shlex.quote(f"./{shown}" if shown.startswith("-") else shown)
    trace, user = (answer.question.where for answer in found[:2])
    terminal.say(f"The file is {path}. To try next:")
    for command in (
        f"inspect {file}",
        f'explain {file} --where "{trace}" --analyze',
        f'scan {file} --where "{user}" --columns ts,status,msg',
        f"index list {file}",
    ):
        terminal.say(f"  intarsia {command}")
