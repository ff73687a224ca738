"""How well the gradients of head gates predict the change of the loss when a head is switched off.

.venv/bin/python bench/head_importance.py RUN SOURCE TARGET
"""

import argparse
from pathlib import Path

import numpy as np

from heedful.attention.head_names import all_heads
from heedful.attention.importance import ablate_heads, estimate_importance
from heedful.data.pairs import read_parallel
from heedful.inspection.prune import batch_pairs
from heedful.storage.run_folder import RunFolder
from heedful.translation.translator import Translator


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("run", "source", "target"):
        parser.add_argument(name, type=Path)
    options = parser.parse_args()
    translator = Translator.load(options.run, "cpu")
    pairs = list(read_parallel([str(options.source)], [str(options.target)]))
    batches = batch_pairs(RunFolder(options.run), translator, pairs)
    heads = all_heads(translator.model)
    estimated, real = estimate_importance(translator.model, batches), ablate_heads(translator.model, batches, heads)
    for head in sorted(heads, key=lambda head: real[head]):
        print(f"{head!s:12} {estimated[head]:8.4f} estimated {real[head]:8.4f} real")
    ranks = [np.argsort(np.argsort([values[head] for head in heads])) for values in (estimated, real)]
    correlation = np.corrcoef(ranks[0], ranks[1])[0, 1]
    print(f"rank correlation {correlation:.2f} over {len(heads)} heads and {len(pairs)} pairs")


if __name__ == "__main__":
    main()
