"""SQL conditions with parameters, parsed once."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from intarsia.errors import PredicateError
from intarsia.expr.sql_text import check_characters
from intarsia.expr.tree import to_expression
from intarsia.sql.query.parameters import numbered, substitute_parameters
from intarsia.sql.where_clause import SQL_ERRORS, parse_condition, translated

_COMPARISONS = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE)


class ConditionTemplate:
    """A SQL condition over ``schema`` whose constants are given later.

    Parameters are written ``?``, or ``$1``, ``$2`` and so on. Raises ``PredicateError`` if ``text``
    is no condition.

    >>> ConditionTemplate("a > ?", pa.schema({"a": pa.int64()})).expression([5])
    <pyarrow.compute.Expression (a > 5)>
    """

    def __init__(self, text: str, schema: pa.Schema) -> None:
        check_characters(text)
        self.text, self.schema = text, schema
        try:
            text = numbered(text, "duckdb")
        except SQL_ERRORS as error:
            raise PredicateError(f"cannot parse the condition {text!r}") from error
        self._tree = parse_condition(text, schema)
        names = {place.name for place in self._tree.find_all(exp.Placeholder)}
        self.num_parameters = len(names)
        if names != {str(number) for number in range(1, len(names) + 1)}:
            raise PredicateError(f"{self.text!r}: parameters are ?, or $1, $2 and so on")

    def expression(self, values: Sequence[object]) -> pc.Expression:
        """Returns the Expression with ``values``, one for each parameter.

        Raises ``PredicateError`` if a value does not fit its place.
        """
        self.check(values)
        tree = exp.Paren(this=self._tree.copy())
        substitute_parameters(tree, values)
        for place in tree.find_all(exp.Placeholder):
            value = values[int(place.name) - 1]
            raise PredicateError(
                f"{self.text!r}: {value!r} cannot be the value of parameter {place.name} there"
            )
        return to_expression(translated(tree, self.text, self.schema))

    def check(self, values: Sequence[object]) -> None:
        """Raises ``PredicateError`` unless there is one value for each parameter."""
        if len(values) != self.num_parameters:
            raise PredicateError(
                f"{self.text!r} has {self.num_parameters} parameters, not {len(values)}"
            )

    def compared_parameters(self) -> list[int] | None:
        """Returns the parameters of the comparisons that AND joins, by position from 0.

        Returns None unless each part is a comparison of a column with a parameter on its right.
        """
        positions = []
        tree = self._tree.unnest()
        parts = tree.flatten() if isinstance(tree, exp.And) else [tree]
        for part in parts:
            comparison = part.unnest()
            if not isinstance(comparison, _COMPARISONS):
                return None
            column, parameter = comparison.args["this"], comparison.args["expression"]
            is_simple = isinstance(column, exp.Column) and isinstance(parameter, exp.Placeholder)
            if not is_simple:
                return None
            positions.append(int(parameter.name) - 1)
        return positions
