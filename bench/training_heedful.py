"""heedful's own training loop, set up as `heedful train` does it.

Arguments: folder of the benchmark, threads. heedful's modules are imported inside the functions, because PyTorch may
only be imported after GOMP_SPINCOUNT is set, as on the command line.
"""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from contender import Step, serve, train_for
from workload import EOS, PAD, Ids, Shape, make_sentences

if TYPE_CHECKING:
    from heedful.config import Experiment
    from heedful.data.corpus import Corpus


def main() -> None:
    # As on the command line.
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")
    folder, threads = Path(sys.argv[1]), int(sys.argv[2])
    serve(train_for(heedful_step(folder, Shape.read(folder / "shape.json"), threads)))


def heedful_step(folder: Path, shape: Shape, threads: int) -> Step:
    """One update of heedful's loop, with batches from its own corpus."""
    import torch

    from heedful.data.batch import Batching, Position
    from heedful.device import use_threads
    from heedful.kernels.threads import count_workers
    from heedful.models.build import build_seq2seq
    from heedful.models.size import Vocabulary
    from heedful.training.gradients import Objective, make_gradients
    from heedful.training.loop import TrainingState, UpdateSplit, make_updates, training_steps
    from heedful.training.optimizer import make_optimizer

    use_threads(threads)
    settings = experiment(shape)
    torch.manual_seed(settings.seed)
    model = build_seq2seq(settings.model, Vocabulary(shape.vocabulary, shape.vocabulary, PAD, EOS))
    learner = TrainingState(model, make_optimizer(model, settings.train), None)
    workers = count_workers(torch.device("cpu"))
    gradients = make_gradients(model, Objective(shape.label_smoothing, settings.seed), workers)
    batching = Batching(settings.train.batch_tokens, settings.seed)
    corpora = [write_sentences(folder, shape)]
    endless = make_updates(corpora, Position(), batching, UpdateSplit(workers), PAD, torch.device("cpu"))
    events = training_steps(learner, endless, gradients, shape.d_model, settings.train)
    return lambda: next(events).tokens


def experiment(shape: Shape) -> "Experiment":
    """The recipe of this shape; all other options have the paper's values."""
    from heedful.config import merge
    from heedful.tasks import make_experiment

    model = {
        **{"d_model": shape.d_model, "d_ff": shape.d_ff, "num_heads": shape.num_heads, "dropout": shape.dropout},
        **{"encoder_layers": shape.layers, "decoder_layers": shape.layers},
    }
    train = {"batch_tokens": shape.batch_tokens, "label_smoothing": shape.label_smoothing, "warmup_steps": 400}
    return make_experiment(merge({"model": model, "train": train}))


def write_sentences(folder: Path, shape: Shape) -> "Corpus":
    """The sentences in heedful's own files."""
    from heedful.data.corpus import PairLimits, write_corpus
    from heedful.data.pairs import Pair

    sentences = make_sentences(shape)
    longest = max(map(max, sentences.lengths()))
    numbers = (Pair(str(index), str(index)) for index in range(shape.pairs))

    def chosen(side: Sequence[Ids], texts: Sequence[str]) -> list[list[int]]:
        return [side[int(text)].tolist() for text in texts]

    encoders = (lambda texts: chosen(sentences.sources, texts), lambda texts: chosen(sentences.targets, texts))
    return write_corpus(folder / "heedful", numbers, encoders, shape.vocabulary, PairLimits(longest))


if __name__ == "__main__":
    main()
