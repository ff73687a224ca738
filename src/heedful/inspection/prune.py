"""Prune a trained model: remove the heads that matter least, and measure the effect."""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter

import torch
from torch import Tensor

from heedful.attention.head_names import Head, all_heads
from heedful.attention.importance import estimate_importance
from heedful.attention.pruning import choose_least_important, remove_heads
from heedful.config import BleuTokens, ModelConfig, SearchConfig
from heedful.data.batch import Batch, Batching, epoch_batches
from heedful.data.corpus import PairLimits, write_corpus
from heedful.data.pairs import Pair
from heedful.errors import ConfigError, DataError, FolderError, counted
from heedful.models.build import build_seq2seq
from heedful.models.seq2seq import AnySeq2Seq
from heedful.models.transformer import Transformer
from heedful.progress import Reporter
from heedful.storage.files import clear_folder, write_atomically
from heedful.storage.model_card import make_model_card
from heedful.storage.run_folder import RunFolder, fill_model, software_versions
from heedful.translation.translator import Translator
from heedful.translation.word_alignment import save_best_aligner

_BATCH_TOKENS = 2048  # heads with gates use plain attention, which keeps all weights in memory
_ROUNDS = 10  # re-estimate importance after each tenth of the heads
_TURN = 64  # sentences per turn; the speed of a machine changes from minute to minute


@dataclass(frozen=True, slots=True)
class Measured:
    """A model before or after pruning."""

    heads: int
    parameters: int
    score: float  # BLEU, or the task's own score
    sentences_per_second: float


@dataclass(frozen=True, slots=True)
class Pruning:
    """The heads that were removed, by their former names, and the model before and after."""

    removed: tuple[str, ...]
    before: Measured
    after: Measured
    speed: float  # relative to the unpruned model


def prune(
    run: RunFolder,
    translator: Translator,
    keep: float,
    pairs: Sequence[Pair],
    search: SearchConfig,
    out: Path,
    reporter: Reporter,
) -> Pruning:
    """Remove the heads that matter least for these pairs; write the smaller model as a new run folder."""
    model = translator.model
    if not isinstance(model, Transformer):
        raise ConfigError(
            f"{run.path} is a {type(model).__name__}, but only Transformers can be pruned; prune one of those"
        )
    count = count_heads_to_remove(model, keep)
    with _new_folder(out) as folder:  # fail early if the folder cannot be written
        removed = choose_heads(model, batch_pairs(run, translator, pairs), count, reporter)
        config, weights = remove_heads(model, removed)
        # The model may come with an engine that the pruned one cannot use; both run on PyTorch, so only heads differ.
        whole = _make_translator(translator, model)
        smaller = _make_translator(translator, _build_pruned(translator, config, weights))
        pruning = _compare(whole, smaller, removed, pairs, search, run.experiment().evaluate.tokenize, reporter)
        _write(run, folder, config, weights, pruning)
        save_best_aligner(folder, smaller, pairs)
    return pruning


def _compare(
    whole: Translator,
    smaller: Translator,
    removed: Sequence[Head],
    pairs: Sequence[Pair],
    search: SearchConfig,
    tokenize: BleuTokens,
    reporter: Reporter,
) -> Pruning:
    """Compare size, score and speed before and after."""
    outputs, seconds = _race((whole, smaller), [pair.source for pair in pairs], search, reporter)
    targets = [[pair.target] for pair in pairs]
    before, after = (
        Measured(
            heads=len(all_heads(one.model)),
            parameters=sum(weight.numel() for weight in one.model.parameters()),
            score=whole.task.quick_score(lines, targets, tokenize).value,
            sentences_per_second=len(pairs) / sum(taken),
        )
        for one, lines, taken in zip((whole, smaller), outputs, seconds, strict=True)
    )
    speed = median(old / new for old, new in zip(*seconds, strict=True))
    return Pruning(tuple(map(str, removed)), before, after, speed)


@contextmanager
def _new_folder(path: Path) -> Iterator[RunFolder]:
    """A new run folder, which is removed again if anything fails."""
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise FolderError(f"--out {path} already exists; choose another")
    folder = RunFolder.create(path)
    try:
        yield folder
    except BaseException:
        clear_folder(path)
        raise


def count_heads_to_remove(model: AnySeq2Seq, keep: float) -> int:
    """The number of heads to remove: at least one, and each attention layer keeps one."""
    if not 0.0 < keep <= 1.0:
        raise ConfigError(f"--keep must be above 0 and below 1, but is {keep} instead; 0.7 keeps seven heads of ten")
    total, least = len(all_heads(model)), sum(map(len, model.attentions.values()))
    left = round(keep * total)
    if left == total:
        raise ConfigError(f"--keep {keep} of {counted(total, 'head')} removes none; lower it")
    if left < least:
        raise ConfigError(
            f"--keep {keep} leaves {left} of {counted(total, 'head')}, but each layer of each attention keeps one, "
            f"which makes {least}; the least is --keep {math.ceil(100 * least / total) / 100}"
        )
    return total - left


def choose_heads(model: AnySeq2Seq, batches: Sequence[Batch], count: int, reporter: Reporter) -> list[Head]:
    """Choose the heads to remove, in rounds: once some are gone, others matter more."""
    removed: list[Head] = []
    portion = math.ceil(len(all_heads(model)) / _ROUNDS)
    rounds = math.ceil(count / portion)
    for number in range(rounds):

        def show(done: int, total: int, start: int = number) -> None:
            reporter.progress("weighing heads", start * total + done, rounds * total)

        importance = estimate_importance(model, batches, removed, show)
        removed += choose_least_important(importance, min(portion, count - len(removed)))
    return removed


def batch_pairs(run: RunFolder, translator: Translator, pairs: Sequence[Pair]) -> list[Batch]:
    """Batch the pairs as for training, without those that are too long."""
    data, tokenizers = run.experiment().data, translator.tokenizers
    encoders = (tokenizers.source.encode_all, tokenizers.target.encode_all)
    size = max(tokenizers.source.vocabulary_size, tokenizers.target.vocabulary_size)
    device = next(translator.model.parameters()).device
    with TemporaryDirectory() as folder:
        seen = (translator.task.symbols(pair) for pair in pairs)
        corpus = write_corpus(Path(folder), seen, encoders, size, PairLimits(data.max_length, data.max_ratio))
        if not len(corpus):
            raise DataError("every pair is empty or too long; give other text to weigh the heads by")
        indices = epoch_batches(*corpus.lengths(), Batching(_BATCH_TOKENS, 0), 0)
        return [corpus.batch(some, translator.model.pad_id).to(device) for some in indices]


def _build_pruned(whole: Translator, config: ModelConfig, weights: Mapping[str, Tensor]) -> AnySeq2Seq:
    with torch.device("meta"):
        model = build_seq2seq(config, whole.tokenizers.vocabulary)
    device = next(whole.model.parameters()).device
    fill_model(model.to_empty(device=device), weights, "the pruned model")
    return model.eval()


def _make_translator(whole: Translator, model: AnySeq2Seq) -> Translator:
    return Translator.from_model(model, whole.tokenizers, whole.search, whole.task)


def _race(
    translators: Sequence[Translator], sources: Sequence[str], search: SearchConfig, reporter: Reporter
) -> tuple[list[list[str]], list[list[float]]]:
    """Let two models translate in turns; the outputs of each, and its seconds for each turn."""
    outputs: list[list[str]] = [[] for _ in translators]
    seconds: list[list[float]] = [[] for _ in translators]
    for translator in translators:
        translator.translate(sources[:8], search=search, split_sentences=False)  # warm up
    for start in range(0, len(sources), _TURN):
        turn = sources[start : start + _TURN]
        order = range(len(translators))
        for which in reversed(order) if start % (2 * _TURN) else order:
            began = perf_counter()
            found = translators[which].translate(turn, search=search, split_sentences=False)
            outputs[which] += [line.text for line in found]
            seconds[which].append(perf_counter() - began)
        reporter.progress("translating before and after", start + len(turn), len(sources))
    return outputs, seconds


def _write(
    run: RunFolder, folder: RunFolder, config: ModelConfig, weights: Mapping[str, Tensor], pruning: Pruning
) -> None:
    experiment = replace(run.experiment(), model=config)
    folder.begin(experiment)
    folder.describe(experiment, run.tokenizers())
    left = f"{pruning.after.heads} of {pruning.before.heads} heads"
    folder.write_weights(weights, f"pruned from {run.path.resolve().name}: {left}")
    history = {"parent": str(run.path), "parent_weights": run.note(), **asdict(pruning)}
    folder.write_about({"data": run.about().get("data", {}), "versions": software_versions(), "pruned": history})
    write_atomically(folder.path / "README.md", make_model_card(folder))
