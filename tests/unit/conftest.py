from __future__ import annotations

import importlib
import sys
import warnings
from collections.abc import Callable

import pytest
from commands import Said

from intarsia.cli.command_line import run

# rich reads COLUMNS when it is imported.
importlib.import_module("intarsia.cli.output.terminal")


@pytest.fixture
def say(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Said]:
    """Runs ``intarsia`` with arguments, as the installed command does."""
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)
    monkeypatch.setenv("COLUMNS", "400")

    def call(*arguments: object) -> Said:
        capsys.readouterr()
        monkeypatch.setattr(sys, "argv", ["intarsia", *map(str, arguments)])
        code = 0
        try:
            run()
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
        return Said(*capsys.readouterr(), code)

    return call
