"""The kinds in ``docs/how-to/custom-index-kinds.md`` work as the document says."""

import re
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import intarsia as ia
from intarsia.index import registry

TEXT = (Path(__file__).parents[2] / "docs/how-to/custom-index-kinds.md").read_text()


def test_the_documented_kinds_keep_the_contract_and_skip_granules(tmp_path, monkeypatch, capsys):
    kind, summary, check = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(registry, "_registered", dict(registry._registered))
    names = {}
    exec(compile(kind, "kinds.md", "exec"), names)
    assert f"```text\n{capsys.readouterr().out}```" in TEXT
    parts = [f"{country}-{i}" for country in ("DE", "FR", "PT") for i in range(100)]
    pq.write_table(pa.table({"part": parts, "n": range(300)}), "parts.parquet")
    ia.add_indexes("parts.parquet", ["country(part, granule_rows=10)"])
    data, part = ia.dataset("parts.parquet"), pc.field("part")
    for expected, actual in (
        (part == "FR-7", 100),
        (part.isin(["FR-7", "PT-1"]), 200),
        (pc.starts_with(part, "DE-1"), 100),
        (pc.starts_with(part, "D"), 300),
        (pc.match_like(part, "DE-1%"), 100),
    ):
        (file,) = data.explain(filter=expected).files
        assert {step.source: step.rows for step in file.plan.steps}.get(
            "index part:country", 300
        ) == actual
        assert data.count_rows(filter=expected) == len(
            pq.read_table("parts.parquet", filters=expected)
        )
    exec(compile(summary, "kinds.md", "exec"), names)
    ia.register_index_kind(names["Remainders"])
    ia.add_indexes("parts.parquet", ["remainders(n, granule_rows=10)"])
    for expected, granules in ((pc.field("n") == 3, 5), (pc.field("n").isin([3, 70]), 7)):
        (file,) = data.explain(filter=expected).files
        assert {s.source: s.rows for s in file.plan.steps}["index n:remainders"] == 10 * granules
        assert data.count_rows(filter=expected) == len(
            pq.read_table("parts.parquet", filters=expected)
        )
    exec(compile(check, "kinds.md", "exec"), names)
