"""A run folder whose model has random weights and never predicts EOS, so that outputs are as long as inputs.

The cost of a translation then depends only on sizes. Each word of its texts is one piece.
"""

import argparse
import random
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from workload import TINY

if TYPE_CHECKING:
    from heedful.config import ModelConfig

_NOT_WORDS = 258  # PAD, EOS and all bytes
_LETTERS = "abcdefghijklmnopqrstuvwxyz"


def words(vocabulary: int) -> list[str]:
    """The words of a vocabulary of this size; they have only letters, so that none is split."""
    count = vocabulary - _NOT_WORDS
    return ["".join(_LETTERS[number // 26**place % 26] for place in range(4)) for number in range(count)]


def random_texts(vocabulary: int, length: int, count: int) -> list[str]:
    """Random texts, the same for the same arguments; each has this many pieces, with EOS."""
    known, draw = words(vocabulary), random.Random(1)
    return [" ".join(draw.choices(known, k=length - 1)) for _ in range(count)]


def random_run(folder: Path, config: "ModelConfig", vocabulary: int) -> None:
    """Write the run folder."""
    import torch

    from heedful.config import Experiment, SearchConfig
    from heedful.models.build import build_seq2seq
    from heedful.storage.run_folder import RunFolder, Tokenizers
    from heedful.text.tokenizer_training import learn_tokenizer

    # Outputs are no longer than the source, and none is decoded again because it has no end.
    experiment = Experiment(model=config, search=SearchConfig(max_extra=0, guard=False))
    text = replace(experiment.text, kind="words", vocabulary_size=vocabulary)
    tokenizer = learn_tokenizer(words(vocabulary), text)
    tokenizers = Tokenizers(tokenizer, tokenizer)
    torch.manual_seed(1)
    model = build_seq2seq(config, tokenizers.vocabulary)
    with torch.no_grad():
        # A logit of 0 is far below the best of many random ones.
        model.output_weight[tokenizer.eos_id] = 0.0
    run = RunFolder.create(folder)
    run.begin(replace(experiment, text=text))
    run.describe(replace(experiment, text=text), tokenizers)
    run.write_weights(dict(model.named_parameters()), "random")


def main() -> None:
    parser = argparse.ArgumentParser(description="Make a run folder with random weights.")
    parser.add_argument("out", type=Path)
    parser.add_argument("--like", type=Path, help="a run folder with the sizes to use; default: those of `tiny`")
    parser.add_argument("--vocabulary", type=int, default=TINY.vocabulary)
    options = parser.parse_args()
    random_run(options.out, _like(options.like) if options.like else _tiny(), options.vocabulary)


def _like(folder: Path) -> "ModelConfig":
    from heedful.storage.run_folder import RunFolder

    return replace(RunFolder.open(folder).experiment().model, sharing="all")


def _tiny() -> "ModelConfig":
    from heedful.config import ModelConfig

    sizes = ModelConfig(d_model=TINY.d_model, d_ff=TINY.d_ff, num_heads=TINY.num_heads)
    return replace(sizes, encoder_layers=TINY.layers, decoder_layers=TINY.layers)


if __name__ == "__main__":
    main()
