"""The commands: their arguments, options and help.

Their work is done by the functions of the same names in ``cli/actions``. Modules here import click
and nothing that takes long, so that ``--help`` is quick.
"""
