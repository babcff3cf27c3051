"""Which keys of a formula are looked up. Leaving out keys can only add granules to the result.

::

    page     0      1      2      3        10 bytes each
    keys   0 – 9  10 – 19  20    20 – 29   in 10 granules
"""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from intarsia.index.key_formula import Every, Keys, Some, granules_of, leaves_of
from intarsia.index.probe_budget import Costs, ProbeBudget

PAGES = {
    key: [0] if key < 10 else [1] if key < 20 else [2, 3] if key == 20 else [3] for key in range(30)
}
SHARES = {key: 0.9 if key == 20 else 0.1 * (key % 7) + 0.05 for key in range(30)}
COSTS = Costs(
    lambda leaf: (
        np.unique([page for key in leaf.keys.tolist() for page in PAGES[key]]),
        min(1.0, sum(SHARES[key] for key in leaf.keys.tolist())),
    ),
    np.full(4, 10),
)
LEAVES = st.lists(st.integers(0, 29), min_size=1, max_size=3).map(
    lambda keys: Keys(np.array(keys, np.uint32))
)
FORMULAS = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, min_size=1, max_size=4).flatmap(
        lambda parts: st.sampled_from([Every(tuple(parts)), Some(tuple(parts))])
    ),
    max_leaves=12,
)


def key(*keys):
    return Keys(np.array(keys, np.uint32))


def affordable(formula, costs, most):
    """All keys that are looked up: first, and in the second step."""
    purse = ProbeBudget(costs, most)
    first, rest = purse.first(formula)
    more = purse.more(rest) if rest is not None else None
    return first if more is None else Every((first, more)) if first is not None else more


def keys_of(formula):
    return [leaf.keys.tolist() for leaf in leaves_of(formula)]


@given(FORMULAS, st.integers(0, 50), st.integers(0, 9))
def test_selected_keys_are_affordable_and_lose_no_granule(formula, most, seed):
    actual = affordable(formula, COSTS, most)
    if actual is None:
        return
    pages = {
        page for leaf in leaves_of(actual) for key in leaf.keys.tolist() for page in PAGES[key]
    }
    assert 10 * len(pages) <= most
    has_key = np.random.default_rng(seed).random((30, 10)) < 0.6

    def granules(leaf):
        return has_key[leaf.keys].any(axis=0)

    assert not (granules_of(formula, granules, 10) & ~granules_of(actual, granules, 10)).any()


@pytest.mark.parametrize(
    ("formula", "most", "selected"),
    [
        (Every((key(20), key(7), key(14))), 40, [[7], [14], [20]]),
        (Every((key(20), key(7), key(14))), 30, [[7], [14]]),
        (Every((key(20), Every((key(7), key(14))))), 10, [[7]]),
        (Every((key(8), key(7))), 10, [[7], [8]]),
        (Every((key(20), Some((key(7), key(14))))), 20, [[7], [14]]),
        (Some((key(20), key(7))), 30, [[20], [7]]),
        (key(7, 14), 20, [[7, 14]]),
    ],
)
def test_rare_keys_are_looked_up_first(formula, most, selected):
    assert keys_of(affordable(formula, COSTS, most)) == selected


@pytest.mark.parametrize("formula", [key(20), Some((key(7), key(14))), Every((key(20), key(20)))])
def test_no_key_is_looked_up_if_it_costs_too_much(formula):
    assert affordable(formula, COSTS, 10) is None


def test_after_enough_rare_keys_the_others_are_deferred():
    costs = Costs(lambda leaf: (leaf.keys.astype(np.int64), 1e-5), np.full(30, 10))
    formula = Every(tuple(key(i) for i in range(24)))
    purse = ProbeBudget(costs, 100)
    first, rest = purse.first(formula)
    assert len(leaves_of(first)) == 2
    assert len(leaves_of(purse.more(rest))) == 8
