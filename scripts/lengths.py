"""Print the longest functions and files: a smell to look at, not a limit.

.venv/bin/python scripts/lengths.py
"""

import ast
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[1] / "src" / "heedful"
LONG_FUNCTION = 70
LONG_FILE = 500


def main() -> None:
    """Print a line for every function and every file that is longer than usual."""
    for path in sorted(SOURCE.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        name = path.relative_to(SOURCE)
        if (lines := text.count("\n")) > LONG_FILE:
            print(f"{lines:4} lines  {name}")
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno:
                lines = node.end_lineno - node.lineno + 1
                if lines > LONG_FUNCTION:
                    print(f"{lines:4} lines  {name}:{node.lineno} {node.name}")


if __name__ == "__main__":
    main()
