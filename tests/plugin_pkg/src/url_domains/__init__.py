"""``Domain``: an index that finds the URLs of a domain."""

import re
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from intarsia.index import How, Inverted, Keys, Op, SearchPredicate, fingerprints


@dataclass(frozen=True)
class Domain(Inverted):
    """Serves ``url = '…'``, and prefixes longer than the domain, by ``LIKE`` or otherwise."""

    kind = "domain"
    serves = frozenset({Op.EQ, How.STARTS_WITH, How.LIKE})

    def unfit(self, of):
        return None if of.is_text else "it is no text"

    def keys_of_values(self, values):
        actual = pc.extract_regex(values, pattern=r"^(?P<domain>[a-z]+://[^/]*)/")
        domains = pc.struct_field(actual, "domain")
        return fingerprints(domains.drop_null()), np.flatnonzero(domains.is_valid())

    def keys_for(self, predicate, of):
        if not isinstance(predicate, SearchPredicate):
            sought = predicate.values[0].as_py()
        elif predicate.ignore_case or predicate.through:
            return None
        else:
            sought = predicate.pattern
            if predicate.how is How.LIKE:
                sought = re.split(r"[%_\\]", sought, maxsplit=1)[0]
        keys, _ = self.keys_of_values(pa.array([sought], pa.string()))
        return Keys(keys) if len(keys) else None
