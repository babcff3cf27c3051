"""Findings: what ``verify`` reports about a file, one for each thing that is wrong."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from enum import IntEnum

from intarsia.errors import FormatError, UnsupportedError, Where
from intarsia.notebook import notebook_html
from intarsia.redaction import shown_redacted


class Severity(IntEnum):
    """How bad a finding is; higher is worse.

    Examples
    --------
    >>> max(ia.Severity.NOTE, ia.Severity.ERROR).name
    'ERROR'
    """

    NOTE = 0
    """Nothing is wrong, but something could be better, such as an index that other files have."""
    WARNING = 1
    """Query results stay right: something is wasteful, unusual, or could not be checked."""
    ERROR = 2
    """Damaged bytes or wrong metadata, which make readers fail or return wrong results."""


@shown_redacted
@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong, or could be better, and where.

    Attributes
    ----------
    severity : Severity
        How bad it is.
    where : Where
        File, row group, column, page and byte offset, as far as they apply.
    message : str
        A description of the problem.

    Examples
    --------
    >>> reports = ia.add_indexes("lake/service=api/0.parquet", ["trace_id:lookup"])
    >>> for finding in ia.verify("lake"):
    ...     print(finding)
    note: ...: it has no index trace_id:lookup, which 1 of the 2 files have
    """

    severity: Severity
    where: Where
    message: str

    def __str__(self) -> str:
        return f"{self.severity.name.lower()}: {self.where}: {self.message}"

    def _repr_html_(self) -> str:
        parts = [(field.name, getattr(self.where, field.name)) for field in fields(self.where)]
        places = [(name.replace("_", " "), value) for name, value in parts if value is not None]
        title = f"{self.severity.name.capitalize()}: {self.message}"
        return notebook_html(title, (("where", ""), places))


def error(where: Where, message: str) -> Finding:
    """Returns a finding that makes readers fail or return wrong results."""
    return Finding(Severity.ERROR, where, message)


def warning(where: Where, message: str) -> Finding:
    """Returns a finding that leaves query results right."""
    return Finding(Severity.WARNING, where, message)


def note(where: Where, message: str) -> Finding:
    """Returns a finding that says what could be better, though nothing is wrong."""
    return Finding(Severity.NOTE, where, message)


def finding_of(problem: FormatError, where: Where) -> Finding:
    """Returns a finding for an error: a warning if something is unsupported, else an error."""
    known = problem.at(where)
    if isinstance(problem, UnsupportedError):
        return warning(known.where, f"not checked: {known.message}")
    return error(known.where, known.message)


def worst(findings: Iterable[Finding]) -> Severity | None:
    """Returns the highest severity, or None if there is no finding."""
    return max((finding.severity for finding in findings), default=None)
