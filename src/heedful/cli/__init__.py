"""The command line: one file a command."""

from heedful.cli.app import main

__all__ = ["main"]
