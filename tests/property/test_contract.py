"""The published contract for custom index kinds: built-in kinds keep it, faulty kinds fail it."""

import importlib.util
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import Phase, settings

import intarsia as ia
from intarsia.index import How, Inverted, Keys, Op, SearchPredicate, Summary, fingerprints, registry
from intarsia.testing import check_index_kind
from intarsia.testing.strategies import SEARCHES

TYPES = [
    pa.string(), pa.int64(), pa.uint64(), pa.float64(), pa.float32(), pa.binary(), pa.date32(),
    pa.timestamp("us"), pa.timestamp("ms", "UTC"), pa.decimal128(10, 2), pa.bool_(), pa.int8(),
]  # fmt: skip


@pytest.mark.parametrize("type_", [t for t in TYPES if t != pa.bool_()], ids=str)
def test_lookup_keeps_the_contract(type_):
    check_index_kind(lambda on: ia.Lookup(on, granule_rows=7), type_, max_examples=8)


@pytest.mark.parametrize("type_", TYPES, ids=str)
@pytest.mark.parametrize("kind", [ia.Distinct, ia.MinMax])
def test_kinds_of_values_keep_the_contract(kind, type_):
    searches = list(SEARCHES) if type_ == pa.string() else []
    check_index_kind(lambda on: kind(on, granule_rows=7), type_, searches=searches, max_examples=8)


@pytest.fixture
def domain(monkeypatch):
    package = Path(__file__).parents[1] / "plugin_pkg" / "src" / "url_domains" / "__init__.py"
    spec = importlib.util.spec_from_file_location("url_domains", package)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(registry, "_registered", {})
    return ia.register_index_kind(module.Domain)


URLS = ["https://a.b/", "https://a.b/c", "http://a.b/c", "https://é.x/y\nz", "https://", "a.b/c"]


def test_the_example_plugin_keeps_the_contract(domain):
    check_index_kind(
        domain, pa.string(), values=URLS, searches=list(SEARCHES),
        patterns=["https://a.b/%", "https://a.b/"], subjects=[pc.utf8_lower], max_examples=40,
    )  # fmt: skip


@dataclass(frozen=True)
class Lossy(Inverted):
    """Forgets every value that is longer than one character."""

    kind = "lossy"
    serves = frozenset({Op.EQ, How.SUBSTRING})

    def keys_of_values(self, values):
        actual = np.flatnonzero(pc.utf8_length(values).to_numpy() <= 2)
        return fingerprints(values.take(pa.array(actual))), actual

    def keys_for(self, predicate, of):
        if isinstance(predicate, SearchPredicate):
            return Keys(fingerprints(pa.array([predicate.pattern])))
        return Keys(fingerprints(predicate.values))


@dataclass(frozen=True)
class Longest(Summary):
    """Stores the length of each granule's longest string; forgets NULLs."""

    kind = "longest"
    serves = frozenset({Op.EQ, Op.IN, Op.NONE})

    def summarize(self, values, starts):
        lengths = pc.fill_null(pc.binary_length(values), 0).to_numpy()
        actual = np.maximum.reduceat(lengths, starts[:-1]) if len(starts) > 1 else lengths
        return pa.RecordBatch.from_pydict({"most": pa.array(actual, pa.int32())})

    def might_match(self, predicate, summaries, of):
        most = summaries.column("most").to_numpy()
        if not len(predicate.values):
            return np.zeros(len(most), dtype=bool)
        return most >= pc.min(pc.binary_length(predicate.values)).as_py()


class Longer(Longest):
    """Stores the same, and remembers that NULLs pass where they do."""

    kind = "longer"

    def might_match(self, predicate, summaries, of):
        actual = super().might_match(predicate, summaries, of)
        return actual | predicate.nulls


@pytest.fixture
def registered(monkeypatch):
    monkeypatch.setattr(registry, "_registered", {})
    return ia.register_index_kind


@pytest.fixture
def unshrunk():
    """Reports examples without shrinking them, which takes long and is not tested here."""
    settings.register_profile("unshrunk", settings(), phases=[Phase.generate])
    settings.load_profile("unshrunk")
    yield
    settings.load_profile("default")


@pytest.mark.usefixtures("unshrunk")
def test_a_kind_that_loses_rows_fails_the_contract(registered):
    with pytest.raises(AssertionError, match=r"(?s)the index leaves .* for .* of string values"):
        check_index_kind(
            registered(Lossy), pa.string(), searches=["match_substring"], max_examples=2000
        )


def test_a_kind_that_forgets_nulls_always_fails_the_contract(registered):
    with pytest.raises(AssertionError, match=r"the index leaves \[.*null"):
        check_index_kind(registered(Longest), pa.string(), values=["abc", "d"], max_examples=1)


def test_a_custom_summary_keeps_the_contract(registered):
    check_index_kind(registered(Longer), pa.string(), max_examples=30)


@dataclass(frozen=True)
class Failing(Lossy):
    """Fails when it is asked."""

    kind = "failing"

    def keys_for(self, predicate, of):
        return 1 / 0


def test_a_kind_that_fails_is_warned_of_and_ignored(registered, tmp_path):
    registered(Failing)
    path = tmp_path / "t.parquet"
    ia.write_table(pa.table({"s": ["a", "b"]}), path, indexes="s:failing")
    with pytest.warns(ia.IntarsiaWarning, match=r"s:failing is ignored.*ZeroDivisionError"):
        assert ia.ParquetFile(path).read(filter=pc.field("s") == "a").num_rows == 1


def test_a_kind_that_gives_no_formula_is_warned_of_and_ignored(registered, tmp_path):
    @dataclass(frozen=True)
    class Listing(Lossy):
        kind = "listing"

        def keys_for(self, predicate, of):
            return [1]

    registered(Listing)
    path = tmp_path / "t.parquet"
    ia.write_table(pa.table({"s": ["a", "b"]}), path, indexes="s:listing")
    with pytest.warns(ia.IntarsiaWarning, match=r"s:listing is ignored.*keys_for gave a list"):
        assert ia.ParquetFile(path).read(filter=pc.field("s") == "a").num_rows == 1


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        ((np.zeros(1, np.uint64), np.zeros(1, np.int64)), "uint64"),
        ((np.zeros(2, np.uint32), np.zeros(1, np.int64)), "2 keys for 1 positions"),
        ((np.zeros(1, np.uint32), np.ones(1, np.int64) * 9), "positions outside"),
        ((pa.array(["a"]), np.zeros(1, np.int64)), "keys of another type"),
        (np.zeros(1, np.uint32), "a ndarray, not keys and positions"),
        ((np.zeros(1, np.uint32), [0]), "positions that are no array of integers"),
        ((np.zeros(1, np.uint32), np.zeros(1)), "positions that are no array of integers"),
    ],
)
def test_invalid_keys_are_refused(keys, problem, registered, tmp_path):
    @dataclass(frozen=True)
    class Wrong(Lossy):
        kind = "wrong"

        def keys_of_values(self, values):
            return keys

    registered(Wrong)
    with pytest.raises(ia.IndexSpecError, match=problem):
        ia.write_table(pa.table({"s": ["a"]}), tmp_path / "t.parquet", indexes="s:wrong")


def test_only_kinds_are_registered(registered):
    class Nameless(Inverted):
        serves = frozenset({Op.EQ})

    class Taken(Lossy):
        kind = "lookup"

    for wrong in (int, Nameless, Taken, ia.Bloom):
        with pytest.raises(ia.IndexSpecError):
            registered(wrong)


def test_a_kind_is_not_checked_without_a_type():
    with pytest.raises(TypeError, match="nothing is checked without a type"):
        check_index_kind(ia.Lookup)
