"""The command ``completion``."""

from __future__ import annotations

import click

from intarsia.cli.options import Action


@click.command(cls=Action)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion() -> None:
    """Print a script that completes commands, options and paths in SHELL.

    \b
    intarsia completion bash > ~/.local/share/bash-completion/completions/intarsia
    intarsia completion zsh > "${fpath[1]}/_intarsia"
    intarsia completion fish > ~/.config/fish/completions/intarsia.fish
    """
