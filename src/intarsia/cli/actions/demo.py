"""``intarsia demo``: writes a table with indexes and queries it, without network and Spark."""

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
from intarsia.io.storage import is_uri, resolve
from intarsia.plan.explain_text import of

_FILE = "logs.parquet"


def demo(folder: str, rows: int) -> None:
    """Writes a table with indexes to a folder, and asks it five questions."""
    path = _path_in(folder)
    with terminal.progress("writing") as update:
        row = write_logs(path, rows, update)
    (report,) = list_indexes(path)
    names = ", ".join(entry.name for entry in report.indexes)
    terminal.say(
        f"{path}: {terminal.plural(report.rows, 'row')}, {report.file_bytes:,} bytes, "
        f"with page indexes and {names}"
    )
    selected = questions(row)
    with terminal.progress("asking") as update:
        answered = list(answers(path, selected, update))
    terminal.say()
    for question in selected:
        terminal.say(f"{question.title}: {question.where}")
    terminal.say()
    _table(answered)
    terminal.say()
    wrong = sum(not answer.is_equal for answer in answered)
    if wrong:
        terminal.say(f"{wrong} of {len(answered)} answers differ from brute force")
        sys.exit(1)
    _print_next_steps(path, answered)


def _path_in(folder: str) -> Path:
    """Returns the path of the file. Creates its folder if it is missing."""
    on, place = resolve(folder)
    if not isinstance(on, pafs.LocalFileSystem):
        raise PathError(f"{folder}: files are written to local folders only")
    path = Path(place if is_uri(folder) else folder, _FILE)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise PathError(f"{folder}: there can be no such folder: {error.strerror}") from error
    return path


def _table(answered: Sequence[Answer]) -> None:
    """Prints the rows of each answer, and the pages and bytes that were read for it."""
    reads = [answer.read for answer in answered]
    columns = [
        Column("question", [answer.question.title for answer in answered]),
        terminal.numbers("rows", [answer.rows for answer in answered]),
        Column("as brute force", ["yes" if answer.is_equal else "NO" for answer in answered]),
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


def _print_next_steps(path: Path, answered: Sequence[Answer]) -> None:
    """Prints where the file is, and commands to try next."""
    shown = str(path)
    file = shlex.quote(f"./{shown}" if shown.startswith("-") else shown)
    trace, user = (answer.question.where for answer in answered[:2])
    terminal.say(f"The file is {path}. To try next:")
    for command in (
        f"inspect {file}",
        f'explain {file} --where "{trace}" --analyze',
        f'scan {file} --where "{user}" --columns ts,status,msg',
        f"index list {file}",
    ):
        terminal.say(f"  intarsia {command}")
