"""``intarsia completion``: the script that a shell reads to complete commands."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class


def completion(shell: str) -> None:
    """Prints the script for a shell."""
    script = get_completion_class(shell)
    command = click.get_current_context().find_root().command
    assert script is not None
    click.echo(script(command, {}, "intarsia", "_INTARSIA_COMPLETE").source())
