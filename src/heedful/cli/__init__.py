"""The command line: one file per command."""

from heedful.cli.commands import main

__all__ = ["main"]
