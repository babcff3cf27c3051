"""Exit codes of the command line, besides 0, 1 for an error and 2 for wrong usage."""

INTERRUPTED = 130
"""Ctrl-C ended the command."""
TIMED_OUT = 124
"""``--timeout`` ended the command. The command ``timeout`` has the same code."""
PARTIAL_SUCCESS = 3
"""Some files of ``maintain`` could not be changed."""
REQUIREMENT_UNMET = 6
"""A requirement of ``status --require`` does not hold."""
