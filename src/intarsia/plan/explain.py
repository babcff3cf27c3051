"""What a query touches, as text: per file, what each source of knowledge left over."""

from __future__ import annotations

from dataclasses import dataclass, fields

from intarsia.plan.plan import Figures, FilePlan, Plan

_SHOWN_FILES = 20


@dataclass(frozen=True, slots=True)
class Explanation:
    """A plan, and where it was carried out, what was really read.

    ``planned`` and ``read`` hold ``files``, ``row_groups``, ``pages``, ``rows``, ``bytes`` and
    ``requests``, each with ``selected`` and ``total``. In ``planned``, ``rows`` are those that
    might match and ``bytes`` their pages in all columns; in ``read``, ``rows`` are those that did
    match, and ``bytes`` and ``requests`` include footers and indexes. ``seconds`` is the time
    reading took.
    """

    plan: Plan
    filter: str
    columns: tuple[str, ...]
    read: Figures | None = None
    seconds: float | None = None

    @property
    def planned(self) -> Figures:
        return self.plan.figures

    def __str__(self) -> str:
        lines = [f"filter   {self.filter}", f"columns  {', '.join(self.columns)}"]
        lines += _figures("planned", self.planned)
        if self.read is not None:
            lines += _figures("read", self.read)
        if self.seconds is not None:
            lines.append(f"  seconds     {self.seconds:.4f}")
        lines.append("files")
        for file in self.plan.files[:_SHOWN_FILES]:
            lines += _file(file)
        if len(self.plan.files) > _SHOWN_FILES:
            lines.append(f"  … and {len(self.plan.files) - _SHOWN_FILES} more files")
        return "\n".join(lines)


def _figures(title: str, figures: Figures) -> list[str]:
    rows = [
        f"  {field.name:<11} {amount if amount.total else f'{amount.selected:,}'}"
        for field in fields(figures)
        for amount in [getattr(figures, field.name)]
    ]
    return [title, *rows]


def _file(file: FilePlan) -> list[str]:
    lines = [f"  {file.path}: {file.figures.rows} rows"]
    lines += [
        f"    {step.source:<28} leaves {step.rows:,} rows in {step.row_groups} row groups"
        for step in file.steps
    ]
    return lines
