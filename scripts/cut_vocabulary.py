"""Leave out of a model the pieces that a text hardly has: a joint model of four languages becomes one of two.

    .venv/bin/python scripts/cut_vocabulary.py RUN OUT --text train.en train.de

Texts of the kept pieces are tokenised as before, and the model says the same about them. Other texts become more and
shorter pieces. The tokenizer must be byte-level BPE and the same on both sides.
"""

import argparse
import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from heedful.storage.run_folder import RunFolder, Tokenizers
from heedful.text.tokenizer import Tokenizer

LEAST = 50  # a model hardly knows a piece that it has seen less often


def main() -> None:
    """Cut the vocabulary of a run folder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="a run folder of a Transformer")
    parser.add_argument("out", type=Path, help="the new run folder")
    parser.add_argument("--text", type=Path, nargs="+", required=True, help="text that the model is for, both sides")
    parser.add_argument("--least", type=int, default=LEAST, help="how often a piece must be in the text")
    options = parser.parse_args()
    cut_vocabulary(RunFolder.open(options.run), options.out, options.text, options.least)


def cut_vocabulary(run: RunFolder, out: Path, texts: Iterable[Path], least: int = LEAST) -> RunFolder:
    """A new run folder with the smaller model."""
    whole = run.tokenizers().source
    ids = kept_ids(whole, _lines(texts), least)
    tokenizer = with_pieces(whole, ids)
    experiment = run.experiment()
    experiment = replace(experiment, text=replace(experiment.text, vocabulary_size=len(ids)))
    weights = run.model().state_dict()
    folder = RunFolder.create(out)
    folder.begin(experiment)
    folder.describe(experiment, Tokenizers(tokenizer, tokenizer))
    folder.write_weights(
        {name: weight[ids] if len(weight) == whole.vocabulary_size else weight for name, weight in weights.items()},
        run.note(),
    )
    folder.write_about({"data": run.about().get("data", {})})
    print(f"{out}: {len(ids)} of {whole.vocabulary_size} pieces kept")
    return folder


def kept_ids(tokenizer: Tokenizer, lines: Iterable[str], least: int) -> list[int]:
    """The pieces that the lines have often enough, those that they are merged from, all bytes and special symbols."""
    counts: Counter[int] = Counter()
    for ids in tokenizer.encode_all(list(lines)):
        counts.update(ids)
    model = json.loads(tokenizer.to_json())["model"]
    halves = {left + right: (left, right) for left, right in model["merges"]}
    kept = set(model["vocab"]) - set(halves)
    waiting = [piece for piece, number in model["vocab"].items() if counts[number] >= least]
    while waiting:
        piece = waiting.pop()
        if piece not in kept:
            kept.add(piece)
            waiting.extend(halves[piece])
    return sorted(model["vocab"][piece] for piece in kept)


def with_pieces(tokenizer: Tokenizer, ids: Iterable[int]) -> Tokenizer:
    """The tokenizer with these pieces alone, numbered anew in this order."""
    layout = json.loads(tokenizer.to_json())
    model = layout["model"]
    names = {number: piece for piece, number in model["vocab"].items()}
    model["vocab"] = {names[number]: new for new, number in enumerate(ids)}
    model["merges"] = [pair for pair in model["merges"] if pair[0] + pair[1] in model["vocab"]]
    for token in layout["added_tokens"]:
        token["id"] = model["vocab"][token["content"]]
    return Tokenizer.from_json(json.dumps(layout, ensure_ascii=False), "the smaller tokenizer")


def _lines(texts: Iterable[Path]) -> Iterator[str]:
    for path in texts:
        yield from path.read_text(encoding="utf-8").splitlines()


if __name__ == "__main__":
    main()
