"""The explanation of a query of an engine: the scans of its tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from intarsia.notebook import notebook_html
from intarsia.plan.explanation import Explanation
from intarsia.redaction import shown_redacted


@shown_redacted
@dataclass(frozen=True, slots=True)
class QueryExplanation:
    """The explanations of the scans of a query's tables, by name. ``str`` prints all of them.

    Examples
    --------
    >>> explained = ia.explain_sql("SELECT count(*) FROM t WHERE status = 500", t="logs.parquet")
    >>> explained.tables["t"].reader
    'engine'
    """

    tables: Mapping[str, Explanation]
    """The explanation of each table that is a data set."""
    seconds: float | None = None
    """Elapsed seconds of the query; None unless it was run."""

    @property
    def verdict(self) -> str:
        """How much of each table the query reads, and what decided that, in one line."""
        parts = [f"{name}: {one.verdict}" for name, one in self.tables.items()]
        return "; ".join(parts) or "reads no data set"

    def __str__(self) -> str:
        heads = [f"verdict  {self.verdict}"]
        if self.seconds is not None:
            heads.append(f"seconds  {self.seconds:.4f}")
        parts = [f"\ntable    {name}\n{one}" for name, one in self.tables.items()]
        return "\n".join(heads + parts)

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        tables = [(name, one.reader, one.verdict) for name, one in self.tables.items()]
        heads = ("table", "reader", "verdict")
        return notebook_html(f"Query: {self.verdict}", (heads, tables), text=str(self))

    def to_dict(self) -> dict[str, Any]:
        """Returns the explanation as a dictionary for ``json.dumps``."""
        return {
            "verdict": self.verdict,
            "seconds": self.seconds,
            "tables": {name: one.to_dict() for name, one in self.tables.items()},
        }
