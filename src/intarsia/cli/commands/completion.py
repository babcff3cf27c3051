"""The command ``completion``."""

from __future__ import annotations

from typing import Any

import click


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(**options: Any) -> None:
    """Print a script that completes commands, options and paths in SHELL.

    \b
    intarsia completion bash > ~/.local/share/bash-completion/completions/intarsia
    intarsia completion zsh > "${fpath[1]}/_intarsia"
    intarsia completion fish > ~/.config/fish/completions/intarsia.fish
    """
    from intarsia.cli.actions import completion as body

    body.completion(**options)
