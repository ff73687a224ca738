"""The command line: one file a command."""

from heedful.cli.commands import main

__all__ = ["main"]
