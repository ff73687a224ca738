"""Train JoeyNMT by its own program and note the processor time before each validation; runs in JoeyNMT's environment.

Arguments: configuration, file for a JSON line per validation.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any


def main() -> None:
    from joeynmt import __main__ as program
    from joeynmt.training import TrainManager

    config, notes = sys.argv[1], Path(sys.argv[2])
    validate = TrainManager._validate
    spent, since = 0.0, time.process_time()

    def timed(manager: Any, data: Any) -> None:
        nonlocal spent, since
        spent += time.process_time() - since
        validate(manager, data)
        # Written after the hypotheses are, because this line tells the reader to look for them.
        with notes.open("a", encoding="utf-8") as file:
            print(json.dumps({"step": manager.stats.steps, "seconds": spent}), file=file)
        since = time.process_time()

    TrainManager._validate = timed
    sys.argv = ["joeynmt", "train", config, "--skip-test"]
    program.main()


if __name__ == "__main__":
    main()
