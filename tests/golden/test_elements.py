"""Indexes on lists and maps of real files, with all names that writers give to the levels."""

import shutil
import warnings
from collections import Counter

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import intarsia as ia
from intarsia.expr.functions import is_list

LEVELS = {"list/element", "list/item", "array", "(itself)", "key_value/key", "map/key"}
"""Names by the specification, by Arrow, of lists of two levels and of one, and of maps."""
MOST_BYTES = 1_000_000


def lists_within(path, kind):
    if is_list(kind) or pa.types.is_map(kind):
        yield path
    elif pa.types.is_struct(kind):
        for field in kind:
            yield from lists_within((*path, field.name), field.type)


def test_every_list_of_the_corpus_that_can_be_indexed(corpus, tmp_path):
    seen = Counter()
    for path in sorted((corpus / "files").iterdir()):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            seen.update(check(path, tmp_path / path.name))
    assert {level for level, _ in seen} >= LEVELS
    assert sum(count for (_, actual), count in seen.items() if actual) > 80


def check(original, copy):
    """Yields the levels of each list in a file, and whether values were looked up in it."""
    try:
        file = ia.ParquetFile(original)
        schema, fields = file.schema, file.schema_arrow
        paths = [path for field in fields for path in lists_within((field.name,), field.type)]
        if not paths or len(set(fields.names)) < len(fields):
            return  # two columns have the same name
        chunks = (chunk.meta_data for g in file.metadata.row_groups for chunk in g.columns)
        if sum(chunk.total_uncompressed_size for chunk in chunks if chunk) > MOST_BYTES:
            return
        whole = pq.read_table(original)
    except (ia.IntarsiaError, pa.ArrowException, OSError):
        return
    for path in paths:
        shutil.copy(original, copy)
        try:
            ia.add_indexes(copy, ia.Elements(".".join(path), granule_rows=3))
        except ia.IndexSpecError:
            continue  # a list of structs or of lists
        except ia.IntarsiaError:
            return  # damaged, or must not be changed
        under = next(leaf.path for leaf in schema.leaves if leaf.path[: len(path)] == path)
        yield "/".join(under[len(path) :]) or "(itself)", compare(copy, path, whole)
    copy.unlink(missing_ok=True)


def compare(path, on, whole):
    """Compares the rows found with those that Python finds; returns True if rows were found."""
    assert not [actual for actual in ia.verify(path) if "elements" in str(actual)]
    values = whole[on[0]]
    for name in on[1:]:
        values = pc.struct_field(values, name)
    is_map = pa.types.is_map(values.type)
    cells = [
        None if cell is None else [item[0] for item in cell] if is_map else cell
        for cell in values.to_pylist()
    ]
    kind = values.type.key_type if is_map else values.type.value_type
    held = list(dict.fromkeys(v for cell in cells for v in cell or () if v is not None and v == v))
    source = ia.dataset(path)
    for value in [*held[:3], *held[-2:]]:
        literal = pa.scalar(value, kind.value_type if pa.types.is_dictionary(kind) else kind)
        ask = ia.map_contains if is_map else ia.list_contains
        condition = ask(pc.field(*on), literal)
        actual = source.to_table(["__row_number"], filter=condition)
        due = [row for row, cell in enumerate(cells) if cell is not None and value in cell]
        assert actual["__row_number"].to_pylist() == due, (path, on, value)
        steps = [step.source for step in source.explain(filter=condition).files[0].plan.steps]
        assert f"index {'.'.join(on)}:elements" in steps
    return bool(held)
