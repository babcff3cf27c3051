"""Index kinds of other packages, found by entry point without installing the package."""

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "plugin_pkg"
DOMAINS = '[f"https://h{i}.example/{i}" for i in range(500)]'
WRITE = f"""
import pyarrow as pa, intarsia as ia
table = pa.table({{"url": {DOMAINS}, "n": range(500)}})
ia.write_table(table, "t.parquet", indexes=["domain(url, granule_rows=10)", "n:lookup"])
"""
READ = """
import json, sys, pyarrow.compute as pc, intarsia as ia
source = ia.dataset("t.parquet")
def asked(filter):
    found = source.explain(filter=filter)
    steps = {step.source: step.rows for step in found.files[0].plan.steps}
    return steps.get("index url:domain"), source.to_table(filter=filter).num_rows
none = source.to_table(filter=pc.field("n") == 7).num_rows
before = "url_domains" in sys.modules
url = pc.field("url")
found = [
    asked(url == "https://h7.example/7"),
    asked(pc.starts_with(url, "https://h7.example/")),
    asked(pc.match_like(url, "https://h7.example/%")),
    asked(pc.match_like(url, "%7%")),
]
kinds = [entry.kind for entry in ia.list_indexes("t.parquet")[0].indexes]
remarks = source.explain(filter=url == "https://h7.example/7").files[0].remarks
findings = [str(finding) for finding in ia.verify("t.parquet")]
print(json.dumps([none, before, found, kinds, remarks, findings]))
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """A folder as an installer creates it: the package's code and its metadata."""
    project = tomllib.loads((PACKAGE / "pyproject.toml").read_text())["project"]
    site = tmp_path_factory.mktemp("installed") / "site"
    return declare(site, project["name"], project["entry-points"])


@pytest.fixture(scope="module")
def written(installed, tmp_path_factory):
    """A folder with a file that has an index of the package's kind."""
    folder = tmp_path_factory.mktemp("written")
    said = run(WRITE, folder, installed, PACKAGE / "src")
    assert (said.returncode, said.stderr) == (0, "")
    return folder


def declare(folder, name, entry_points):
    info = folder / f"{name.replace('-', '_')}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    lines = [
        line
        for group, points in entry_points.items()
        for line in (f"[{group}]", *(f"{point} = {at}" for point, at in points.items()))
    ]
    (info / "entry_points.txt").write_text("\n".join(lines))
    return folder


def run(program, cwd, *path):
    code = f"import sys; sys.path[:0] = {[str(folder) for folder in path]!r}\n{program}"
    return subprocess.run(
        [sys.executable, "-W", "default", "-c", code], cwd=cwd, capture_output=True, text=True,
        timeout=600,
    )  # fmt: skip


def test_a_kind_is_found_by_its_entry_point_and_imported_when_it_is_needed(installed, written):
    said = run(READ, written, installed, PACKAGE / "src")
    assert said.stderr == ""
    none, before, actual, kinds, _, findings = json.loads(said.stdout)
    assert (none, before) == (1, False)
    assert actual == [[10, 1], [10, 1], [10, 1], [None, 167]] or actual[:3] == [[10, 1]] * 3
    assert actual[3][0] is None
    assert kinds == ["domain", "lookup"]
    assert findings == []


def test_without_the_package_its_indexes_are_carried_along_and_ignored(written):
    said = run(READ, written)
    assert said.stderr == ""
    _, before, actual, kinds, remarks, findings = json.loads(said.stdout)
    assert not before
    assert actual[:3] == [[None, 1]] * 3
    assert kinds == ["domain", "lookup"]
    assert "index url:domain not used: kind domain is not known here" in remarks
    assert len(findings) == 1
    assert "not checked" in findings[0]


def test_kinds_named_by_a_file_are_imported_only_if_declared(written):
    said = run(READ + "\nassert 'url_domains' not in sys.modules", written, PACKAGE / "src")
    assert (said.returncode, said.stderr) == (0, "")


@pytest.mark.parametrize("broken", ["nowhere:Domain", "url_domains:nothing", "json:loads"])
def test_a_broken_plugin_is_warned_of_and_costs_no_answer(broken, written, tmp_path):
    points = {"intarsia.index_kinds": {"domain": broken}}
    site = declare(tmp_path / "broken", "broken", points)
    said = run(READ, written, site, PACKAGE / "src")
    assert f"index kind 'domain' of {broken} cannot be used" in said.stderr
    assert said.returncode == 0
    assert [rows for _, rows in json.loads(said.stdout)[2][:3]] == [1, 1, 1]
