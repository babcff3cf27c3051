"""What ``verify`` says of a file: one finding for each thing that is wrong."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum

from intarsia.errors import FormatError, UnsupportedError, Where
from intarsia.redaction import shown_redacted


class Severity(IntEnum):
    """How bad a finding is; higher is worse."""

    NOTE = 0
    """Nothing is wrong: something that could be better, as an index that other files have."""
    WARNING = 1
    """Answers stay right: something is wasteful, unusual, or could not be checked."""
    ERROR = 2
    """Damaged bytes, or a claim that makes readers fail or answer wrongly."""


@shown_redacted
@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong, or could be better, and where."""

    severity: Severity
    where: Where
    message: str

    def __str__(self) -> str:
        return f"{self.severity.name.lower()}: {self.where}: {self.message}"


def error(where: Where, message: str) -> Finding:
    """A finding that makes readers fail or answer wrongly."""
    return Finding(Severity.ERROR, where, message)


def warning(where: Where, message: str) -> Finding:
    """A finding that leaves answers right."""
    return Finding(Severity.WARNING, where, message)


def note(where: Where, message: str) -> Finding:
    """A finding that says what could be better, where nothing is wrong."""
    return Finding(Severity.NOTE, where, message)


def of_exception(problem: FormatError, where: Where) -> Finding:
    """A finding for what could not be decoded, or is not known here."""
    known = problem.at(where)
    if isinstance(problem, UnsupportedError):
        return warning(known.where, f"not checked: {known.message}")
    return error(known.where, known.message)


def worst(findings: Iterable[Finding]) -> Severity | None:
    """The highest severity; None where there is nothing."""
    return max((finding.severity for finding in findings), default=None)
