"""Count the letter trigrams by which heedful detects languages, and write src/heedful/text/trigrams.json.

    .venv/bin/python scripts/trigrams.py en=train.en de=train.de fr=train.fr

The shipped table was counted in Tatoeba's sentences (tatoeba.org, CC-BY 2.0 France).
"""

import json
import sys
from pathlib import Path

from heedful.data.pairs import read_lines
from heedful.text.languages import count_trigrams

KEPT = 3000  # of each language, the most frequent
OUT = Path(__file__).resolve().parent.parent / "src/heedful/text/trigrams.json"


def main() -> None:
    """Count trigrams, keep the most frequent, write the table."""
    given = [argument.partition("=") for argument in sys.argv[1:]]
    tables = {code: dict(count_trigrams(read_lines(Path(path))).most_common(KEPT)) for code, _, path in given}
    OUT.write_text(json.dumps(tables, ensure_ascii=False, separators=(",", ":")) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
