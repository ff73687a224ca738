"""From text files to a run folder that can be trained: tokenizers learnt, pairs as ids on disk."""

import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from itertools import chain, islice
from pathlib import Path

from heedful.config import DataConfig, Experiment
from heedful.data.corpus import FILES, Corpus, DroppedPairs, Encode, PairLimits, write_corpus
from heedful.data.pairs import STANDARD_INPUT, Pair, check_readable, fingerprint, guess_language
from heedful.errors import ConfigError, DataError, FolderError
from heedful.progress import Reporter, report_progress
from heedful.storage.files import (
    MANIFEST,
    DamagedError,
    check_manifest,
    disk_errors,
    write_atomically,
    write_manifest,
)
from heedful.storage.run_folder import RunFolder, Tokenizers, read_valid_pairs
from heedful.tasks import Task, find_task
from heedful.text import SAMPLE_LINES, BpeDropout, Tokenizer, learn_tokenizer, reuse_tokenizer
from heedful.training.autoconfig import default_hold_out

_SAMPLED_PAIRS = 1000  # to see how well a vocabulary fits

Pairs = Callable[[], Iterator[Pair]]  # the corpus from its beginning, as often as needed


@dataclass(frozen=True, slots=True)
class Prepared:
    """What training needs of the data."""

    tokenizers: Tokenizers
    train: tuple[Corpus, ...]  # several where BPE dropout has cut the text in several ways
    valid: Corpus | None
    valid_pairs: tuple[Pair, ...]


def resolve_files(data: DataConfig) -> DataConfig:
    """The same files, with their folder in front and their languages named; all can be read more than once."""
    if not data.source and not data.tsv:
        raise ConfigError("no training data; give source and target, tsv, or data.source in a recipe")

    def placed(names: tuple[str, ...]) -> tuple[str, ...]:
        paths = [path for name in names for path in _matching(Path(data.folder), name)]
        for path in paths:
            if str(path) == STANDARD_INPUT or path.is_fifo():
                raise DataError(f"{path} can be read only once, but training reads text several times; give a file")
        return tuple(map(str, paths))

    return replace(
        data,
        folder="",
        source=placed(data.source),
        target=placed(data.target),
        tsv=placed(data.tsv),
        valid_source=placed(data.valid_source),
        valid_target=placed(data.valid_target),
        test_source=placed(data.test_source),
        test_target=placed(data.test_target),
        source_language=data.source_language or next(map(guess_language, data.source), ""),
        target_language=data.target_language or next(map(guess_language, data.target), ""),
    )


def _matching(folder: Path, name: str) -> list[Path]:
    """The file of this name; or all that match it, in the order of their names."""
    path = folder / name
    if name == STANDARD_INPUT or path.exists() or not any(sign in name for sign in "*?["):
        return [Path(STANDARD_INPUT) if name == STANDARD_INPUT else path]
    found = sorted(Path(path.anchor).glob(str(path.relative_to(path.anchor))))
    if not found:
        raise DataError(f"no file matches {path}; look at data.folder and at the pattern")
    return found


def check_evaluation_files(task: Task, data: DataConfig) -> None:
    """Read the validation files and find those of the test, so that a mistake shows before any work is done."""
    for _ in task.read_validation(data):
        pass
    for name in (*data.test_source, *data.test_target):
        check_readable(Path(name))


def prepare(run: RunFolder, experiment: Experiment, total: int, report: Reporter) -> Prepared:
    """Learn the tokenizers and write the corpora into the run folder. `total` pairs are in `data`."""
    data, task = experiment.data, find_task(experiment.task)
    share = _held_out_share(data, total)
    seed = experiment.seed

    def training_pairs() -> Iterator[Pair]:
        return (task.symbols(pair) for pair in task.read_pairs(data) if not _is_held_out(pair, share, seed))

    tokenizers = _tokenizers(run, experiment, training_pairs, total, report)
    run.describe(experiment, tokenizers)
    limits = PairLimits(data.max_length, data.max_ratio)
    with disk_errors(run.data):
        train = tuple(_train_corpora(run, experiment, tokenizers, training_pairs, total, report))
        _check_not_empty(train[0], data)
        valid_pairs = tuple(_validation_pairs(task, data, share, seed))
        write_atomically(run.data / "valid.json", json.dumps([[p.source, p.target] for p in valid_pairs]))
        valid = _valid_corpus(run, [task.symbols(pair) for pair in valid_pairs], tokenizers, limits)
        write_manifest(run.data, [*_prepared_files(experiment), *(f"valid/{name}" for name in FILES if valid)])
    report.say(_summarise(train[0], len(valid_pairs)))
    return Prepared(tokenizers, train, valid, valid_pairs)


def load_prepared(run: RunFolder, experiment: Experiment, report: Reporter) -> Prepared:
    """What `prepare` left in the run folder; refuses to go on with other data than the run began with."""
    _check_prepared(run, experiment, report)
    _check_texts(run, report)
    train = tuple(Corpus(run.data / f"train-{variant}") for variant in range(_variants(experiment)))
    valid_pairs = read_valid_pairs(run)
    return Prepared(run.tokenizers(), train, Corpus(run.data / "valid") if valid_pairs else None, valid_pairs)


def describe_data(run: RunFolder, experiment: Experiment, prepared: Prepared) -> dict[str, object]:
    """What the run folder remembers of the files: names, fingerprints, counts."""
    data, task = experiment.data, find_task(experiment.task)
    files = [*data.source, *data.target, *data.tsv, *data.valid_source, *data.valid_target]
    return {
        "files": {name: _text_facts(name, run) for name in files},
        "pairs": len(prepared.train[0]),
        "validation_pairs": len(prepared.valid_pairs),
        "pieces_a_word": count_pieces_per_word(
            prepared.tokenizers, task, prepared.valid_pairs or task.read_pairs(data)
        ),
        "dropped": {name: getattr(prepared.train[0].dropped, name) for name in DroppedPairs.__slots__},
        "source_language": data.source_language,
        "target_language": data.target_language,
    }


def count_pieces_per_word(tokenizers: Tokenizers, task: Task, pairs: Iterable[Pair]) -> dict[str, float]:
    """For each side, over the first pairs."""
    seen = [task.symbols(pair) for pair in islice(pairs, _SAMPLED_PAIRS)]
    sides = {
        "source": (tokenizers.source, [pair.source for pair in seen]),
        "target": (tokenizers.target, [pair.target for pair in seen]),
    }
    return {side: round(_mean_pieces(tokenizer, texts), 3) for side, (tokenizer, texts) in sides.items()}


def _mean_pieces(tokenizer: Tokenizer, texts: list[str]) -> float:
    pieces = sum(len(ids) - 1 for ids in tokenizer.encode_all(texts))  # without the end of the sentence
    return pieces / max(1, sum(len(text.split()) for text in texts))


def _text_facts(name: str, run: RunFolder) -> dict[str, object]:
    """What tells whether a text is still the same; its place as seen from the run folder, which may move with it."""
    path = Path(name)
    state = path.stat()  # before it is read, so that a change in the meantime shows as another time
    place = name if path.is_absolute() else os.path.relpath(path.parent.resolve() / path.name, run.path.resolve())
    return {
        "sha256": fingerprint(path),
        "bytes": state.st_size,
        "modified": state.st_mtime_ns,
        "place": Path(place).as_posix(),
    }


def _prepared_files(experiment: Experiment) -> list[str]:
    """What every run of this experiment has in `data`, as names for its manifest."""
    corpora = [f"train-{variant}" for variant in range(_variants(experiment))]
    return ["valid.json", *(f"{corpus}/{name}" for corpus in corpora for name in FILES)]


def _variants(experiment: Experiment) -> int:
    return experiment.text.bpe_variants if experiment.text.bpe_dropout else 1


def _check_prepared(run: RunFolder, experiment: Experiment, report: Reporter) -> None:
    """The ids are those that were written."""
    if not (run.data / MANIFEST).exists():
        report.say(f"{run.data} has no {MANIFEST}: it is from an earlier version and its content is not verified")
        return
    try:
        check_manifest(run.data, required=_prepared_files(experiment))
    except DamagedError as error:
        raise FolderError(
            f"{run.data} is no longer what this run has prepared ({error.reason}); "
            "restore it from a copy, or train in a new folder"
        ) from error


def _check_texts(run: RunFolder, report: Reporter) -> None:
    """The text is that of the beginning, or gone: the run folder has all that training needs of it."""
    match run.about().get("data"):
        case {"files": dict(files)}:
            gone = [name for name, facts in files.items() if not _same_text(name, facts, run)]
        case _:
            raise FolderError(f"{run.path}/about.json is damaged: it does not name the data; restore it from a copy")
    if gone:
        report.say(f"no longer there: {', '.join(gone)}; training goes on with what it has prepared of the text")


def _same_text(name: str, facts: object, run: RunFolder) -> bool:
    """True: it is the same; False: it is not there; a changed one is refused. Only a doubtful one is read."""
    match facts:
        case {"sha256": str(digest), "bytes": int(size), "modified": int(modified), "place": str(place)}:
            path = run.path.resolve() / place
        case str():  # an earlier version noted nothing else
            return True
        case _:
            raise FolderError(f"{run.path}/about.json is damaged: data.files.{name}; restore it from a copy")
    try:
        state = path.stat()
    except OSError:
        return False
    if (state.st_size, state.st_mtime_ns) == (size, modified):
        return True
    if state.st_size != size or fingerprint(path) != digest:
        raise DataError(f"{name} has changed since this run began; restore it, or start a new run with the new text")
    return True


def _tokenizers(run: RunFolder, experiment: Experiment, pairs: Pairs, total: int, report: Reporter) -> Tokenizers:
    text = experiment.text
    if experiment.train.init:
        return run.parent().tokenizers()
    if text.tokenizer_file:
        tokenizer = reuse_tokenizer(Path(text.tokenizer_file))
        report.say(f"vocabulary: {tokenizer.vocabulary_size} pieces of {text.tokenizer_file}")
        return Tokenizers(tokenizer, tokenizer)
    source_kind, target_kind = find_task(experiment.task).tokenizer_kinds(text.kind)
    # Every so many-th pair, so that a sample is of all files.
    stride = -(-2 * total // SAMPLE_LINES)

    def sample(what: str) -> Iterator[Pair]:
        return (
            pair for number, pair in enumerate(report_progress(pairs(), what, total, report)) if number % stride == 0
        )

    if text.vocabularies == "joint":
        lines = chain.from_iterable((pair.source, pair.target) for pair in sample("reading for the vocabulary"))
        joint = learn_tokenizer(lines, replace(text, kind=source_kind))
        return Tokenizers(joint, joint)
    sources = (pair.source for pair in sample("reading for the source vocabulary"))
    source = learn_tokenizer(sources, replace(text, kind=source_kind))
    targets = (pair.target for pair in sample("reading for the target vocabulary"))
    target = learn_tokenizer(targets, replace(text, kind=target_kind))
    return Tokenizers(source, target)


def _train_corpora(
    run: RunFolder, experiment: Experiment, tokenizers: Tokenizers, pairs: Pairs, total: int, report: Reporter
) -> Iterator[Corpus]:
    data, variants = experiment.data, _variants(experiment)
    size = max(tokenizers.source.vocabulary_size, tokenizers.target.vocabulary_size)
    for variant in range(variants):
        encoders = (
            _encoder(tokenizers.source, experiment, 2 * variant),
            _encoder(tokenizers.target, experiment, 2 * variant + 1),
        )
        what = "encoding" if variants == 1 else f"encoding {variant + 1}/{variants}"
        yield write_corpus(
            run.data / f"train-{variant}",
            report_progress(pairs(), what, total, report),
            encoders,
            size,
            PairLimits(data.max_length, data.max_ratio),
        )


def _encoder(tokenizer: Tokenizer, experiment: Experiment, stream: int) -> Encode:
    if not experiment.text.bpe_dropout:
        return tokenizer.encode_all
    dropout = BpeDropout(tokenizer, experiment.text.bpe_dropout)
    calls = iter(range(1 << 62))
    # Each portion of the corpus, each side and each variant is a random stream of its own.
    return lambda texts: dropout.encode_all(texts, hash((experiment.seed, stream, next(calls))))


def _valid_corpus(run: RunFolder, pairs: Sequence[Pair], tokenizers: Tokenizers, limits: PairLimits) -> Corpus | None:
    if not pairs:
        return None
    size = max(tokenizers.source.vocabulary_size, tokenizers.target.vocabulary_size)
    encoders = (tokenizers.source.encode_all, tokenizers.target.encode_all)
    corpus = write_corpus(run.data / "valid", pairs, encoders, size, PairLimits(8 * limits.longest))
    if not len(corpus):
        raise DataError("every validation pair is empty or too long; give other files, or set data.hold_out = 0")
    return corpus


def _held_out_share(data: DataConfig, total: int) -> float:
    """Which part of the training pairs is kept for validation."""
    if data.valid_source or data.hold_out == 0 or not total:
        return 0.0
    count = data.hold_out if data.hold_out > 0 else default_hold_out(total)
    if count >= total:
        raise ConfigError(f"data.hold_out is {data.hold_out}, but there are only {total} pairs; lower it")
    return count / total


def _is_held_out(pair: Pair, share: float, seed: int) -> bool:
    """Chosen by the source sentence, so that all its pairs are on one side and none leaks."""
    if share == 0.0:
        return False
    digest = blake2b(pair.source.encode(), digest_size=8, key=seed.to_bytes(8, "little", signed=True)).digest()
    return int.from_bytes(digest, "little") < share * 2**64


def _validation_pairs(task: Task, data: DataConfig, share: float, seed: int) -> Iterable[Pair]:
    if data.valid_source:
        return task.read_validation(data)
    return (pair for pair in task.read_pairs(data) if _is_held_out(pair, share, seed)) if share else ()


def _check_not_empty(corpus: Corpus, data: DataConfig) -> None:
    if not len(corpus):
        raise DataError(
            f"no pair is left to train on: {corpus.dropped.empty} have an empty side and {corpus.dropped.too_long} "
            f"more than {data.max_length} pieces; look at the files with: heedful doctor"
        )


def _summarise(corpus: Corpus, validation: int) -> str:
    dropped = corpus.dropped
    reasons = [
        f"{count} {why}"
        for count, why in ((dropped.empty, "empty"), (dropped.too_long, "too long"), (dropped.uneven, "uneven"))
        if count
    ]
    left_out = f"; left out {', '.join(reasons)}" if reasons else "; none left out"
    return f"data: {len(corpus)} pairs to train on, {validation} for validation{left_out}"
