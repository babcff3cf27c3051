"""What is told of a read: who does it and why, its tasks, and what statistics and indexes left."""

from __future__ import annotations

from dataclasses import dataclass, replace

from intarsia.plan.explanation import Explanation

_READERS = {"intarsia": "pages", "spark": "engine"}
_NOTE = "a .where() put on the result filters rows, but skips none: say it in where="
_SHOWN_TASKS = 8


@dataclass(frozen=True, slots=True)
class ReadExplanation:
    """What ``read`` would do. Printed, it is ``text``.

    ``reader`` is ``"intarsia"`` or ``"spark"``. ``task_bytes`` are the bytes planned for each task,
    in order; there are none where Spark's own reader divides the files, or the driver reads them.
    ``explanation`` is that of ``Dataset.explain``: files, row groups, pages, rows and bytes, and
    what each index left. ``driver_rows`` is how many rows the driver found, None where it leaves
    them to tasks.
    """

    reader: str
    reason: str
    task_bytes: tuple[int, ...]
    explanation: Explanation
    driver_rows: int | None = None

    @property
    def text(self) -> str:
        """All of it, for people."""
        reader = _READERS[self.reader]
        explanation = replace(self.explanation, reader=reader, reason=self.reason)
        return f"tasks    {self._tasks()}\nnote     {_NOTE}\n{explanation}"

    def __str__(self) -> str:
        return self.text

    def _tasks(self) -> str:
        sizes = self.task_bytes
        if self.reader == "spark":
            return "as Spark divides the files"
        if self.driver_rows is not None:
            selected = self.explanation.planned.bytes.selected
            return f"none: read by the driver, {self.driver_rows:,} rows of {selected:,} bytes"
        if not sizes:
            return "none"
        if len(sizes) > _SHOWN_TASKS:
            return f"{len(sizes):,}, of {min(sizes):,} to {max(sizes):,} bytes each"
        return f"{len(sizes)}, of {', '.join(f'{size:,}' for size in sizes)} bytes"
