"""The explanation of a read: reader and reason, tasks, and what statistics and indexes left."""

from __future__ import annotations

from dataclasses import dataclass, replace

from intarsia.plan.explanation import Explanation

_READERS = {"intarsia": "pages", "spark": "engine"}
_NOTE = "a .where() put on the result filters rows, but skips none: say it in where="
_SHOWN_TASKS = 8


@dataclass(frozen=True, slots=True)
class ReadExplanation:
    """The plan of a ``read``, as ``explain`` returns it. ``str()`` gives ``text``.

    Parameters
    ----------
    reader : str
        ``"intarsia"`` or ``"spark"``.
    reason : str
        Why this reader was chosen.
    task_bytes : tuple of int
        The planned bytes of each task, in order. Empty if Spark's own reader divides the files, or
        if the driver reads them.
    explanation : Explanation
        That of ``Dataset.explain``: files, row groups, pages, rows and bytes, and the rows that
        each index left.
    driver_rows : int, optional
        The number of rows that the driver has read. None if tasks or Spark's own reader read them.

    Examples
    --------
    ::

        plan = ias.explain(spark, "lake/logs", where="status = 500")
        print(plan)
    """

    reader: str
    reason: str
    task_bytes: tuple[int, ...]
    explanation: Explanation
    driver_rows: int | None = None

    @property
    def text(self) -> str:
        """The whole explanation as text for people."""
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
