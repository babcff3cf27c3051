"""Random byte flips. Set ``INTARSIA_FLIPS=1000`` for more; ``benchmarks/rot.py`` makes a table."""

import os

import pytest
import rot

FLIPS = int(os.environ.get("INTARSIA_FLIPS", "72"))
SEED = 20


@pytest.mark.parametrize("shape", list(rot.SHAPES))
def test_no_row_is_wrong_and_none_is_lost_elsewhere(shape):
    counts = rot.run(FLIPS // len(rot.SHAPES), SEED, [shape])
    assert sum(own["flips"] for own in counts.values()) == FLIPS // len(rot.SHAPES)
    assert sum(own["noticed"] for own in counts.values())
    for (part, is_indexed), own in counts.items():
        if part == "footer" and not is_indexed:
            continue  # the format has no checksum for footers, so nothing is guaranteed
        assert not own["wrong rows"], part
        if part == "page header" and shape == "pyarrow, no page index":
            continue  # a wrong number of values may belong to any page
        assert not own["lost elsewhere"], part


@pytest.mark.parametrize("shape", list(rot.SHAPES))
def test_a_whole_file_answers_every_question(shape, tmp_path):
    subject = rot.Subject.of(shape)
    path = tmp_path / "whole.parquet"
    path.write_bytes(subject.data)
    outcome = rot.Outcome()
    rot.ask(path, subject, rot.Place("other", 0, 0), outcome)
    assert outcome == rot.Outcome()
