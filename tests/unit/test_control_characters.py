"""Output never controls a terminal or reverses text; surrogates are an error."""

from __future__ import annotations

import contextlib
import json
import sys
import unicodedata
import warnings

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import intarsia as ia
from intarsia.cli.command_line import run
from intarsia.control_characters import shown_in_json, shown_in_text
from intarsia.errors import FormatError, IntarsiaWarning, PredicateError, Where, warn

ACTING = "".join(
    chr(code)
    for code in range(sys.maxunicode + 1)
    if unicodedata.category(chr(code)) in ("Cc", "Cf", "Cs", "Zl", "Zp")
)
SENT = [c for c in ACTING if unicodedata.category(c) != "Cs" and c != "\0"]
EVIL = "a\x1b[31m\x9b31m\x85\u202egnp.\u2066\u061c\u200f\U000e0041\u2028z"
TABLE = pa.table({EVIL: [EVIL, "ä漢🙂", None], "n": [1, 2, 3]})


def is_safe(text):
    return not set(text) & set(ACTING) - set("\n")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)  # ``run`` replaces it
    data = tmp_path / "data"
    data.mkdir()
    table = TABLE.replace_schema_metadata({"k" + EVIL: EVIL})
    pq.write_table(table, data / f"{EVIL}.parquet", write_page_index=True)
    ia.add_indexes(data, ["n:lookup"])
    return data


def test_json_keeps_its_values():
    for text in ("".join(SENT), "\ud800x\udfff", EVIL, "ä漢🙂"):
        document = shown_in_json(json.dumps({text: [text]}, ensure_ascii=False, indent=2))
        assert is_safe(document)
        assert json.loads(document) == {text: [text]}
    assert shown_in_json('"ä漢🙂"') == '"ä漢🙂"'
    assert shown_in_text("ä漢🙂\n\tx") == "ä漢🙂\n\tx"


COMMANDS = [
    "scan F",
    "scan F --format json",
    "scan F --columns n --where n=1 --format json",
    "explain F --where n=1",
    "explain F --where n=1 --json",
    "explain F --where n=1 --analyze --json",
    "inspect F",
    "inspect F --json",
    "inspect F/* --json",
    "inspect F/*",
    "inspect F --all",
    "pages F",
    "pages F --json",
    "pages F --dictionary --json",
    "verify F",
    "verify F --json",
    "index list F",
    "index list F --json",
    "index list F --all",
    "index add F n:minmax --json",
    "index add F nope:lookup",
    "index drop F n:minmax --json",
    "index advise F n=1 --json",
    "catalog build F --json",
    "catalog show F --json",
    "catalog show F",
    "scan F --columns nope",
    "scan F --columns E",
    "scan F/E",
    "scan F --nope=E",
    "scan F --format E",
    "recover F/E out",
]


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_print_no_control_characters(folder, command, monkeypatch, capfd):
    words = [w.replace("F", str(folder)).replace("E", EVIL) for w in command.split()]
    monkeypatch.setattr(sys, "argv", ["intarsia", *words])
    with contextlib.suppress(SystemExit):
        run()
    out, err = capfd.readouterr()
    assert out + err
    assert is_safe(out), ascii(out)
    assert is_safe(err), ascii(err)


def test_every_control_character_is_escaped_in_rows(tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)
    pq.write_table(pa.table({"x": SENT}), tmp_path / "t.parquet")
    for form in ("json", "table"):
        words = ["intarsia", "scan", str(tmp_path / "t.parquet"), "--format", form]
        monkeypatch.setattr(sys, "argv", words)
        run()
        out, _ = capfd.readouterr()
        assert is_safe(out)
        if form == "json":
            assert [json.loads(line)["x"] for line in out.splitlines()] == SENT


def test_pages_of_html_show_no_control_characters(folder, tmp_path, monkeypatch):
    pytest.importorskip("jinja2")
    for command in ("explain", "inspect"):
        out = tmp_path / "page.html"
        words = [command, str(folder / f"{EVIL}.parquet"), "--html", str(out)]
        words += ["--where", "n = 1"] if command == "explain" else []
        monkeypatch.setattr(sys, "argv", ["intarsia", *words])
        with pytest.raises(SystemExit) if command == "inspect" else warnings.catch_warnings():
            run()
        assert is_safe(out.read_text())


def test_errors_and_warnings_show_no_control_characters():
    error = FormatError(f"column {EVIL}\nis damaged", Where(EVIL, 1, EVIL))
    assert is_safe(str(error))
    assert "\n" in str(error)
    with pytest.warns(IntarsiaWarning) as caught:
        warn(f"{EVIL}: ignored")
    assert is_safe(str(caught[0].message))


HALF = "\ud800"


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    path = tmp_path_factory.mktemp("halves") / "t.parquet"
    ia.write_table(pa.table({"a": ["x", "y"], "n": [1, 2]}), path)
    return ia.dataset(path)


SQL = {
    "filter": lambda data: data.to_table(filter=f"a = '{HALF}'"),
    "count": lambda data: data.count_rows(filter=f"a IN ('{HALF}')"),
    "explain": lambda data: data.explain(filter=f"a LIKE '{HALF}%'"),
    "name": lambda data: data.to_table(filter=f'"{HALF}" = 1'),
    "file": lambda data: ia.ParquetFile(data.files[0]).read(filter=f"lower(a) = '{HALF}'"),
    "advise": lambda data: ia.advise(data.files[0], [f"a = '{HALF}'"]),
    "query": lambda data: ia.sql(f"SELECT * FROM d WHERE a = '{HALF}'", d=data),
    "no_query": lambda data: ia.sql(f"SELEC {HALF}", d=data),
    "comment": lambda data: ia.sql(f"EXPLAIN SELECT * FROM d -- {HALF}", d=data),
    "parameter": lambda data: ia.sql("SELECT * FROM d WHERE a = ?", [HALF], d=data),
    "named": lambda data: ia.sql("SELECT * FROM d WHERE a = $x", {"x": HALF}, d=data),
    "nested": lambda data: ia.sql("SELECT * FROM d WHERE a IN ?", [["x", HALF]], d=data),
}


@pytest.mark.parametrize("call", SQL)
def test_a_surrogate_in_sql_is_a_clear_error(data, call):
    with pytest.raises(PredicateError, match=r"lone surrogate U\+D800") as caught:
        SQL[call](data)
    str(caught.value).encode()  # printable


def test_characters_beyond_the_first_plane_are_no_surrogates(data):
    assert data.to_table(filter="a = '🙂'").num_rows == 0
    assert ia.sql("SELECT count(*) AS n FROM d WHERE a != '🙂'", d=data).to_pydict() == {"n": [2]}
    assert data.to_table(filter=pc.field("a") == "x").num_rows == 1
