"""No credentials in errors, warnings, plans, pages, reports or JSON."""

from __future__ import annotations

import json
import pickle
import sys
import time
import traceback
import warnings

import fsspec
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from fsspec.implementations.memory import MemoryFileSystem

import intarsia as ia
from intarsia.cli.command_line import run
from intarsia.errors import FormatError, IntarsiaWarning, PathError, Where, warn
from intarsia.redaction import redacted

SECRETS = ("AKIAUSER", "hushPass", "hush/Pass", "hush%2FPass", "hushToken", "hushSig", "Pass")
"""Secrets in the URIs below, which must not be shown."""
URIS = {
    "s3": "s3://AKIAUSER:hushPass@bucket/x.parquet?foo=hushToken",
    "slash_in_password": "s3://AKIAUSER:hush/Pass@bucket/x.parquet",
    "at_in_password": "s3://AKIAUSER:hush@Pass@bucket/x.parquet",
    "space_in_password": "s3://AKIAUSER:hush Pass@bucket/x.parquet",
    "percent_encoded": "s3x://AKIAUSER:hush%2FPass@bucket/x.parquet",
    "all_encoded": "s3%3A%2F%2FAKIAUSER%3AhushPass%40bucket%2Fx.parquet",
    "no_bucket": "s3://AKIAUSER:hushPass@/x",
    "no_at": "s3://AKIAUSER:hushPass/bucket/x",
    "bad_port": "s3://AKIAUSER:hushPass@bucket:port/x",
    "user_only": "s3x://AKIAUSER@bucket/x",
    "unknown_scheme": "s3x://AKIAUSER:hushPass@bucket/x",
    "one_slash": "s3:/AKIAUSER:hushPass@bucket/x",
    "no_slash": "s3:AKIAUSER:hush/Pass@bucket/x",
    "no_colon": "s3//AKIAUSER:hush/Pass@bucket/x",
    "semicolon": "s3;//AKIAUSER:hush/Pass@bucket/x",
    "no_scheme": "AKIAUSER:hushPass@bucket/x.parquet",
    "mistyped_key": "s3://bucket/x?secrte_kee=hushPass",
    "bad_escape": "s3://bucket/x?region=%zz&secret_key=hushPass",
    "key_of_gcs": "gs://bucket/x?access_token=hushToken",
    "user_of_gcs": "gs://AKIAUSER:hushPass@bucket/x",
    "sas": "abfss://c@acc.dfs.core.windows.net/x?sv=2024&foo=1&sig=hushSig%2B%3D",
    "sas_elsewhere": "abfz://c@acc.dfs.core.windows.net/x?se=2024&sig=hushSig",
    "account_key": "abfz://acc:hushPass@host/x",
    "presigned": "httpx://h/x.parquet?X-Amz-Credential=AKIAUSER&X-Amz-Signature=hushSig",
    "bare_query": "s3x://bucket/x?hushToken",
    "padded_query": "s3x://bucket/x?hushToken==",
    "endpoint": "s3x://b/x?endpoint_override=http%3A%2F%2FAKIAUSER%3AhushPass%40h",
    "bad_option": "hdfs://AKIAUSER:hushPass@h/x?buffer_size=hushToken",
    "file": "file://AKIAUSER:hushPass@h/x",
}
TABLE = pa.table({"id": range(100), "name": [f"n{i}" for i in range(100)]})


def shows_no_secret(text: str) -> bool:
    return not any(secret in text for secret in SECRETS)


def all_of(error: BaseException) -> str:
    """Everything that can be printed of an error, and of its causes."""
    texts, pending, seen = [], [error], set()
    while pending:
        one = pending.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        texts += [str(one), repr(one), repr(one.args), repr(getattr(one, "filename", ""))]
        texts += getattr(one, "__notes__", [])
        pending += [one.__cause__, one.__context__]
    lines = traceback.format_exception(error)
    return "\n".join([*texts, *(line for line in lines if "def " not in line)])


CALLS = {
    "dataset": ia.dataset,
    "file": ia.ParquetFile,
    "verify": ia.verify,
    "add_indexes": lambda uri: ia.add_indexes(uri, ["id:lookup"]),
    "list_indexes": ia.list_indexes,
    "drop_indexes": lambda uri: ia.drop_indexes(uri, all=True),
    "recover": lambda uri: ia.recover(uri, "/nowhere/at/all/x.parquet"),
    "write_table": lambda uri: ia.write_table(TABLE, uri),
    "build_catalog": ia.build_catalog,
    "sidecar": lambda uri: ia.dataset("/nowhere/at/all", sidecar=uri),
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("name", URIS)
def test_errors_show_no_credentials(name, call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    if call in ("write_table", "recover") and name in ("all_encoded",):
        return  # a local file of that name
    with pytest.raises(Exception) as caught:  # noqa: PT011 # whichever: it shows nothing
        CALLS[call](URIS[name])
    assert shows_no_secret(all_of(caught.value)), all_of(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "s3://bucket/a@b.parquet: there is no such file",
        "/data/ts=12:00/a@b.parquet: there is no such file",
        "abfss://container@account.dfs.core.windows.net/x.parquet",
        "http://host:8080/x.parquet: mail a@b",
        "s3://bucket/x?region=eu-1&scheme=https&endpoint_override=http://h:9000",
        "https://h/x.parquet?versionId=3",
        "column 'a:lookup' of x@y",
        "SELECT 'a' FROM t WHERE x = 'y@z' AND a ? b & c",
        "/a//b?.parquet",
        "file:///C:/x",
    ],
)
def test_strings_without_credentials_do_not_change(text):
    assert redacted(text) == text


def test_redacting_twice_changes_nothing():
    for uri in URIS.values():
        assert redacted(redacted(uri)) == redacted(uri)


def test_long_strings_take_linear_time():
    started = time.process_time()
    for text in ("a://" * 4_000, "s3://a:" * 4_000, "@" * 20_000, "?a=" * 9_000, "x" * 90_000):
        redacted("s3://" + text)
    assert time.process_time() - started < 10


def test_placed_errors_and_pickles():
    error = FormatError(f"damaged: {URIS['s3']}", Where(URIS["s3"], 1, "id"))
    again = error.at(Where(page=3))
    for one in (error, again, pickle.loads(pickle.dumps(error))):
        assert shows_no_secret(all_of(one) + repr(one.where) + one.message)
    assert "row group 1" in str(pickle.loads(pickle.dumps(again)))


def test_warnings_show_no_credentials():
    with pytest.warns(IntarsiaWarning) as caught:
        warn(f"{URIS['s3']}: ignored")
    assert shows_no_secret(str(caught[0].message))
    assert "ignored" in str(caught[0].message)


class RefusedError(Exception):
    """An error with its URL outside its arguments, like those of aiohttp."""

    def __init__(self, url):
        super().__init__(403)
        self.url = url

    def __str__(self):
        return f"403 Forbidden: {self.url}"


class Signed(MemoryFileSystem):
    """Files whose paths are signed URLs, as in fsspec's HTTP file system."""

    protocol = "signed"
    cachable = False
    fails = ""

    @classmethod
    def _strip_protocol(cls, path):
        return path

    def _name(self, path):
        return "/" + path.partition("://")[2].partition("?")[0]

    def info(self, path, **options):
        if self.fails == "info":
            self._fail(path)
        return super().info(self._name(path), **options) | {"name": path}

    def cat_file(self, path, start=None, end=None, **options):
        if self.fails == "cat":
            self._fail(path)
        return super().cat_file(self._name(path), start, end, **options)

    def _fail(self, path):
        try:
            raise RefusedError(path)
        except RefusedError as error:
            raise RuntimeError(f"{path} failed") from error

    def _open(self, path, mode="rb", **options):
        return super()._open(self._name(path), mode, **options)


URL = "https://AKIAUSER:hushPass@h/folder/x.parquet?foo=hushToken&sig=hushSig"


@pytest.fixture
def signed(tmp_path):
    ia.write_table(TABLE, tmp_path / "x.parquet", indexes=["name:lookup"])
    actual = Signed()
    MemoryFileSystem.store.clear()
    with fsspec.filesystem("memory").open("/AKIAUSER:hushPass@h/folder/x.parquet", "wb") as out:
        out.write((tmp_path / "x.parquet").read_bytes())
    yield actual
    MemoryFileSystem.store.clear()


@pytest.mark.parametrize("fails", ["info", "cat"])
def test_errors_of_fsspec_show_no_credentials(signed, fails):
    signed.fails = fails
    with pytest.raises(PathError) as caught:
        ia.ParquetFile(URL, filesystem=signed)
    assert shows_no_secret(all_of(caught.value)), all_of(caught.value)
    assert "403 Forbidden: https://***@h" in all_of(caught.value)


def test_what_describes_a_query_shows_no_credentials(signed):
    data = ia.dataset(URL, filesystem=signed)
    expected = pc.field("name") == "n7"
    explained = data.explain(filter=expected, analyze=True)
    (report,) = ia.list_indexes(URL, filesystem=signed)
    file = ia.ParquetFile(URL, filesystem=signed)
    shown = [
        repr(data),
        repr(next(iter(data.get_fragments()))),
        str(data.plan(filter=expected)),
        repr(data.plan(filter=expected).files),
        str(explained),
        repr(explained.files),
        json.dumps(explained.to_dict()),
        repr(report),
        json.dumps(report.to_dict()),
        repr(file),
        str(ia.verify(URL, filesystem=signed)),
        str(ia.advise(URL, ["name = 'n7'"], filesystem=signed)),
    ]
    pytest.importorskip("jinja2")
    from intarsia.report.render import query_html

    shown.append(query_html(data.explain(filter=expected, analyze=True)))
    for text in shown:
        assert shows_no_secret(text), text
    assert data.files == [URL]
    assert data.to_table(["id"], filter=expected).to_pydict() == {"id": [7]}


COMMANDS = (
    ("scan",),
    ("explain", "--where", "id = 1"),
    ("inspect",),
    ("inspect", "--json"),
    ("pages",),
    ("verify",),
    ("index", "list"),
    ("index", "list", "--json"),
    ("index", "add", "id:lookup"),
    ("catalog", "show"),
)


@pytest.mark.parametrize("name", ["s3", "unknown_scheme", "no_scheme", "mistyped_key", "bad_port"])
def test_the_command_line_shows_no_credentials(name, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)  # ``run`` replaces it
    for command in COMMANDS:
        words = list(command)
        words.insert(2 if words[0] in ("index", "catalog") else 1, URIS[name])
        monkeypatch.setattr(sys, "argv", ["intarsia", *words])
        with pytest.raises(SystemExit) as ended:
            run()
        out, err = capfd.readouterr()
        assert ended.value.code in (1, 2, 5), words
        assert "intarsia: " in err or "Error: " in err
        assert shows_no_secret(out + err), err
