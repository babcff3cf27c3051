"""A kernel runs a notebook, and its outputs are the tables of the results."""

import nbclient
from nbformat import v4

CELLS = {
    "data": ("ds", ["<td", "id", "string"]),
    "explanation": ("ds.explain(filter=\"id = 'k7'\", analyze=True)", ["index id:lookup decided"]),
    "advice": ("ia.advise(path, [\"id = 'k7'\"])", ["id = &#x27;k7&#x27;"]),
    "finding": ("ia.Finding(ia.Severity.ERROR, Where(file='a.parquet'), 'a < b')", ["a &lt; b"]),
    "status": ("ia.status(path)", ["id:lookup", "100.0%"]),
    "job report": ("ia.rewrite(path, indexes=['id:lookup'])", ["4,096"]),
}
SETUP = """
import pyarrow as pa
import intarsia as ia
from intarsia.errors import Where
path = "lake"
table = pa.table({"id": [f"k{n}" for n in range(4096)]})
ia.write_dataset(table, path, indexes=["id:lookup"], max_rows_per_page=512)
ds = ia.dataset(path)
"""


def test_a_notebook_shows_results_as_html(tmp_path):
    cells = [v4.new_code_cell(code) for code in (SETUP, *(code for code, _ in CELLS.values()))]
    notebook = v4.new_notebook(cells=cells)
    resources = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(notebook, timeout=300, resources=resources).execute()
    for cell, (name, (_, parts)) in zip(notebook.cells[1:], CELLS.items(), strict=True):
        shown = [out.data for out in cell.outputs if out.output_type == "execute_result"]
        assert len(shown) == 1, name
        html = shown[0]["text/html"]
        assert html.startswith("<div"), name
        assert [part for part in parts if part not in html] == [], name
