"""Names and sentences keep the rules of CONTRIBUTING.md that a machine can check."""

from pathlib import Path

import pytest
from prose import files_in, problems_in

CHECKOUT = Path(__file__).parents[2]
PLAIN = ("CHANGELOG.md", "CONTRIBUTING.md", "README.md", "benchmarks", "docs", "examples", "src")
"""Files and folders that keep the rules."""
EXCEPTIONS = (
    ("src/intarsia/catalog/build.py", "name", "gone"),  # public fields of reports
    ("src/intarsia/catalog/describe.py", "name", "gone"),
    ("src/intarsia/indexing/add.py", "name", "kept"),
)
"""Problems that stay: the path, the kind and the first words of each."""


@pytest.mark.parametrize("place", PLAIN)
def test_names_and_sentences_are_plain(place):
    problems = [
        (path.relative_to(CHECKOUT).as_posix(), kind, words)
        for path in files_in(CHECKOUT / place)
        for _, kind, words in problems_in(path)
    ]
    assert [problem for problem in problems if problem not in EXCEPTIONS] == []


def problems_of(text, tmp_path, name="module.py"):
    path = tmp_path / name
    path.write_text(text)
    return [(line, kind) for line, kind, _ in problems_in(path)]


def test_each_rule_finds_what_breaks_it(tmp_path):
    long = " ".join(["word"] * 26)
    of = lambda text: problems_of(text, tmp_path)  # noqa: E731
    assert of(f'"""Title.\n\n{long}.\n"""\n') == [(3, "26 words")]
    assert of('"""Of files."""\n') == [(1, "first word")]
    assert of('def f():\n    """Is it there?"""\n') == [(2, "question"), (2, "no verb")]
    assert of('def f():\n    """Returns a number."""\n') == []
    assert of('def f():\n    """True if it is there."""\n') == []
    assert of("x = 1\n# The house stands.\n") == [(2, "word")]
    assert of("found = 1\n") == [(1, "name")]
    assert of("class A:\n    def f(self):\n        self._held = 1\n") == [(3, "name")]
    assert problems_of("x" * 50 + " " + "y" * 50, tmp_path, "a.md") == [(1, "long line")]
    assert problems_of("| " + "y " * 60 + "|", tmp_path, "a.md") == []


def test_code_and_sections_are_no_sentences(tmp_path):
    text = '''"""Returns rows.

Parameters
----------
path : str or list of str
    The file, for example ``one two three four five six seven eight nine ten eleven``.

Examples
--------
>>> a = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25]
"""
'''
    assert problems_of(text, tmp_path) == []
