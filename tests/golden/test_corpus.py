import contextlib
import time
import warnings

import pytest

from intarsia import IntarsiaWarning, ParquetFile
from intarsia.errors import FormatError
from intarsia.io.source import BufferSource
from intarsia.parquet.compact_protocol import list_elements, replace_fields, spans
from intarsia.parquet.footer import framed, read_footer, with_key_values
from intarsia.parquet.page_index import _regular_offset_index, _thrift_offset_index

SECONDS = 5
KEY_VALUES, ENCRYPTION = 5, 8


@pytest.fixture
def path(corpus, corpus_name):
    return corpus / "files" / corpus_name


@pytest.fixture(scope="module")
def footers(corpus):
    """The footers of all files that have one, by name."""
    actual = {}
    for path in sorted((corpus / "files").iterdir()):
        with contextlib.suppress(FormatError):
            actual[path.name] = read_footer(BufferSource(path.read_bytes()))
    return actual


@pytest.fixture(scope="module")
def written_footers(footers):
    """Footers that a writer wrote. Files made to break readers have others."""
    return {
        name: footer
        for name, footer in footers.items()
        if not ("fuzz" in name or "broken" in name) or is_canonical(footer.raw)
    }


def is_canonical(raw):
    try:
        fields, _ = spans(raw)
        elements = [raw, *(e for s in fields if s.number in (2, 4) for e in list_elements(s.value))]
        return all(replace_fields(spans(e)[0], []) == e for e in elements)
    except FormatError:
        return False


def test_the_manifest_names_every_file(corpus):
    lines = (corpus / "manifest.tsv").read_text(encoding="utf-8").splitlines()[1:]
    named = {line.split("\t")[0] for line in lines}
    assert named == {path.name for path in (corpus / "files").iterdir()}


def test_a_file_opens_or_raises_our_own_error(path):
    before = time.process_time()
    problem = None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", IntarsiaWarning)
            inspect(ParquetFile(path))
    except FormatError as error:
        problem = error
    assert problem is None or problem.where.file is not None
    assert time.process_time() - before < SECONDS


def inspect(file):
    assert file.num_rows == sum(group.num_rows for group in file.metadata.row_groups)
    assert len({entry.name for entry in file.indexes}) == len(file.indexes)
    for group in range(len(file.metadata.row_groups)):
        for leaf in range(len(file.schema.leaves)):
            file.page_index(group, leaf)
    assert file.schema_arrow is not None


def test_most_files_have_a_footer(footers, written_footers):
    assert len(footers) > 600
    assert len(written_footers) > 580


def test_fields_of_the_footer_come_back_byte_for_byte(written_footers):
    for name, footer in written_footers.items():
        fields, length = spans(footer.raw)
        assert replace_fields(fields, []) == footer.raw[:length], name
        for field in fields:
            for element in list_elements(field.value) if field.number in (2, 4) else ():
                assert replace_fields(spans(element)[0], []) == element, name


def test_an_added_key_leaves_every_other_field_as_it_was(written_footers):
    for name, footer in written_footers.items():
        before, _ = spans(footer.raw)
        if any(span.number == ENCRYPTION for span in before):
            with pytest.raises(FormatError, match="signed"):
                with_key_values(footer.raw, {"a key": "its value"})
            continue
        edited = with_key_values(footer.raw, {"a key": "its value"})
        after, _ = spans(edited)
        assert [s for s in after if s.number != KEY_VALUES] == [
            s for s in before if s.number != KEY_VALUES
        ], name
        again = read_footer(BufferSource(b"PAR1" + framed(edited)))
        assert again.metadata.key_value("a key") == "its value", name
        assert again.metadata.row_groups == footer.metadata.row_groups, name


def test_both_ways_of_decoding_an_offset_index_agree(footers):
    compared = sum(compare_offset_indexes(name, footer) for name, footer in footers.items())
    assert compared > 500


def decodable(structs):
    for i in range(len(structs)):
        with contextlib.suppress(FormatError):
            yield structs[i]


def compare_offset_indexes(name, footer):
    compared = 0
    for group in footer.metadata.row_groups:
        for chunk in decodable(group.columns):
            if chunk.offset_index_offset is None or not chunk.offset_index_length:
                continue
            place = (chunk.offset_index_offset, chunk.offset_index_length)
            try:
                (data,) = footer.source.read([place])
                slow = _thrift_offset_index(data)
            except FormatError:
                continue
            fast = _regular_offset_index(data)
            if fast is None:
                continue
            assert fast.offset.tolist() == slow.offset.tolist(), name
            assert fast.compressed_page_size.tolist() == slow.compressed_page_size.tolist(), name
            assert fast.first_row_index.tolist() == slow.first_row_index.tolist(), name
            compared += 1
    return compared
