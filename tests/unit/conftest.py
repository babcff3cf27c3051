from __future__ import annotations

import importlib.util
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

from intarsia.cli.main import run

# rich reads COLUMNS when it is imported.
importlib.import_module("intarsia.cli.output.terminal")

# The tests are no package: modules in this folder are imported by path.
for _name in ("commands", "prose"):
    _spec = importlib.util.spec_from_file_location(_name, Path(__file__).with_name(f"{_name}.py"))
    sys.modules[_name] = importlib.util.module_from_spec(_spec)
    _spec.loader.exec_module(sys.modules[_name])
Said = sys.modules["commands"].Said


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
