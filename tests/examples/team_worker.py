"""What torchrun starts in the tests: `heedful` for each line of a file of arguments, without the pictures."""

import json
import sys
from pathlib import Path

import toy

from heedful.cli.commands import main


def run(arguments: list[str]) -> int:
    """One command; its exit code."""
    sys.argv = ["heedful", *arguments]
    try:
        main()
    except SystemExit as ended:
        return int(ended.code or 0)


if __name__ == "__main__":
    plan = [json.loads(line) for line in Path(sys.argv[1]).read_text().splitlines()]
    with toy.plain_log():
        codes = [run(arguments) for arguments in plan]
    sys.exit(max(codes))
