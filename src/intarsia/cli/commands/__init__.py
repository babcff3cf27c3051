"""The commands: their arguments, options and help.

A command imports the module that does its work when it runs. Modules here import click and nothing
that takes long, so that ``--help`` is quick.
"""
