"""Prepare a run folder for training: learn the tokenizers and write the pairs to disk as token ids."""

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from itertools import chain, islice
from pathlib import Path

from heedful.config import DataConfig, Experiment
from heedful.data.batch import Examples
from heedful.data.captions import CAPTION_FILES, CaptionCorpus, CaptionEncoder, CaptionWriter, read_captioned
from heedful.data.corpus import FILES, Corpus, DroppedPairs, Encode, PairLimits, write_corpus
from heedful.data.labelled_corpus import LABELLED_FILES, LabelledCorpus, TextEncoder, write_labelled_corpus
from heedful.data.labels import find_encoder_kind
from heedful.data.masking import MaskedEpochs, MaskedWindows, SpecialIds
from heedful.data.pairs import STANDARD_INPUT, Pair, check_readable, fingerprint, guess_language
from heedful.data.pictures import (
    PICTURE_FILES,
    PictureCorpus,
    PictureWriter,
    is_held_out,
    name_pictures,
)
from heedful.data.spans import SENTINELS, VALIDATION_EPOCH, CorruptedEpochs, CorruptedPassages, find_sentinels
from heedful.data.text import TEXT_FILES, TextCorpus, TextSpan, measure_text, write_text_corpus
from heedful.errors import ConfigError, DataError, FolderError, counted
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
from heedful.text import Tokenizer
from heedful.text.bpe_dropout import BpeDropout
from heedful.text.tokenizer import CLS, MASK, START
from heedful.text.tokenizer_training import SAMPLE_LINES, learn_tokenizer, reuse_tokenizer
from heedful.training.autoconfig import default_hold_out, default_label_hold_out, default_text_hold_out

_SAMPLED_PAIRS = 1000  # to see how well a vocabulary fits
_NAMED_LABELS = 5  # in a warning
_SAMPLED_CHARACTERS = 200_000_000  # more would hardly change a vocabulary

Pairs = Callable[[], Iterator[Pair]]  # reads the corpus from its beginning, as often as needed


@dataclass(frozen=True, slots=True)
class Prepared:
    """The prepared data of a training."""

    tokenizers: Tokenizers
    train: Sequence[Examples]  # one for each epoch in turn
    valid: Examples | None
    valid_pairs: tuple[Pair, ...]  # empty for plain text
    facts: Mapping[str, object]  # counts for about.json


def resolve_files(data: DataConfig) -> DataConfig:
    """The data with complete paths and languages; refuses files that can be read only once."""
    if not any((data.source, data.tsv, data.text, data.images, data.captions)):
        raise ConfigError(
            "no training data; give source and target, tsv, text, labels, images, captions, or data.source in a recipe"
        )

    def find(names: tuple[str, ...]) -> tuple[str, ...]:
        paths = [path for name in names for path in match_files(Path(data.folder), name)]
        for path in paths:
            if str(path) == STANDARD_INPUT or path.is_fifo():
                raise DataError(
                    f"{path} can be read only once, but training reads text several times; give a regular file"
                )
        return tuple(map(str, paths))

    return replace(
        data,
        folder="",
        source=find(data.source),
        target=find(data.target),
        tsv=find(data.tsv),
        text=find(data.text),
        images=find(data.images),
        valid_images=find(data.valid_images),
        captions=find(data.captions),
        valid_captions=find(data.valid_captions),
        valid_text=find(data.valid_text),
        valid_source=find(data.valid_source),
        valid_target=find(data.valid_target),
        test_source=find(data.test_source),
        test_target=find(data.test_target),
        source_language=data.source_language or next(map(guess_language, data.source), ""),
        target_language=data.target_language or next(map(guess_language, data.target), ""),
    )


def match_files(folder: Path, name: str) -> list[Path]:
    """The file of this name, or all files that match it as a pattern, sorted by name."""
    path = folder / name
    if name == STANDARD_INPUT or path.exists() or not any(sign in name for sign in "*?["):
        return [Path(STANDARD_INPUT) if name == STANDARD_INPUT else path]
    found = sorted(Path(path.anchor).glob(str(path.relative_to(path.anchor))))
    if not found:
        raise DataError(f"no file matches {path}; check data.folder and the pattern")
    return found


def check_evaluation_files(task: Task, data: DataConfig) -> None:
    """Read the validation files and find the test files, so that mistakes show up before any work is done."""
    measure_text(data.valid_text)
    for _ in task.read_validation(data):
        pass
    for name in (*data.test_source, *data.test_target):
        check_readable(Path(name))


def prepare(run: RunFolder, experiment: Experiment, total: int, reporter: Reporter) -> Prepared:
    """Learn the tokenizers and write the corpora into the run folder.

    `total` is the number of pairs in the data, or of characters of plain text.
    """
    data, task = experiment.data, find_task(experiment.task)
    if task.reads_stream:
        return _prepare_text(run, experiment, total, reporter)
    if task.reads_pictures:
        return _prepare_pictures(run, experiment, total, reporter)
    if task.matches_pictures:
        return _prepare_captions(run, experiment, total, reporter)
    if task.encoder:
        return _prepare_labels(run, experiment, total, reporter)
    share = _held_out_share(data, total, default_hold_out(total))
    seed = experiment.seed

    def training_pairs() -> Iterator[Pair]:
        return (task.symbols(pair) for pair in task.read_pairs(data) if not _is_held_out(pair, share, seed))

    tokenizers = _make_tokenizers(run, experiment, training_pairs, total, reporter)
    run.describe(experiment, tokenizers)
    limits = PairLimits(data.max_length, data.max_ratio)
    with disk_errors(run.data):
        train = tuple(_write_train_corpora(run, experiment, tokenizers, training_pairs, total, reporter))
        _check_not_empty(train[0], data)
        valid_pairs = tuple(_read_validation_pairs(task, data, share, seed))
        write_atomically(run.data / "valid.json", json.dumps([[p.source, p.target] for p in valid_pairs]))
        valid = _write_valid_corpus(run, [task.symbols(pair) for pair in valid_pairs], tokenizers, limits)
        write_manifest(run.data, [*_list_prepared_files(experiment), *(f"valid/{name}" for name in FILES if valid)])
    reporter.say(_summarise(train[0], len(valid_pairs), "passage" if task.denoises else "pair"))
    facts = _describe_pairs(train[0], tokenizers, task, valid_pairs, data)
    return _join_prepared(tokenizers, train, valid, valid_pairs, facts, experiment)


def _join_prepared(
    tokenizers: Tokenizers,
    train: tuple[Corpus, ...],
    valid: Corpus | None,
    valid_pairs: tuple[Pair, ...],
    facts: Mapping[str, object],
    experiment: Experiment,
) -> Prepared:
    """The data as training reads it: pairs as they are, or passages without some of their spans."""
    if not find_task(experiment.task).denoises:
        return Prepared(tokenizers, train, valid, valid_pairs, facts)
    sentinels, seed = find_sentinels(tokenizers.source), experiment.seed
    corrupted = CorruptedPassages(valid, sentinels, seed, VALIDATION_EPOCH) if valid else None
    return Prepared(tokenizers, CorruptedEpochs(train, sentinels, seed), corrupted, (), facts)


def _prepare_text(run: RunFolder, experiment: Experiment, total: int, reporter: Reporter) -> Prepared:
    """Learn the tokenizer and write plain text as two streams of tokens: the end of the text is for validation."""
    data = experiment.data
    held_out = _held_out_characters(data, total)
    span = TextSpan(data.text, 0, total - held_out)
    if experiment.train.init or experiment.text.tokenizer_file:
        tokenizers = _make_tokenizers(run, experiment, lambda: iter(()), total, reporter)
    else:
        # Take every n-th chunk, so that the sample covers all files.
        stride = -(-total // _SAMPLED_CHARACTERS)
        texts = (chunk for number, chunk in enumerate(span.chunks()) if chunk and number % stride == 0)
        more = (CLS, MASK) if find_task(experiment.task).encoder else ()
        sample = report_progress(texts, "reading for the vocabulary", 0, reporter)
        learnt = learn_tokenizer(sample, experiment.text, more)
        tokenizers = Tokenizers(learnt, learnt)
    run.describe(experiment, tokenizers)
    valid = TextSpan(data.text, span.stop, total)
    if data.valid_text:
        valid = TextSpan(data.valid_text, 0, measure_text(data.valid_text).characters)
    with disk_errors(run.data):
        written = {"train": write_text_corpus(run.data / "train", span, tokenizers.target)}
        if valid.stop > valid.start:
            written["valid"] = write_text_corpus(run.data / "valid", valid, tokenizers.target)
        write_manifest(run.data, [f"{part}/{name}" for part in written for name in TEXT_FILES])
    for name, text in written.items():
        if len(text) < 2:
            what = "text to train on" if name == "train" else "validation text"
            raise DataError(f"the {what} has only {counted(len(text), 'token')}; give more, or change data.hold_out")
    reporter.say(_summarise_text(written, data))
    return _load_text(run, experiment, tokenizers)


def _prepare_labels(run: RunFolder, experiment: Experiment, total: int, reporter: Reporter) -> Prepared:
    """Learn the tokenizer and write labelled texts as ids with the places of their labels."""
    data, task, labels = experiment.data, find_task(experiment.task), experiment.model.labels
    share = _held_out_share(data, total, default_label_hold_out(total))
    seed = experiment.seed

    def training_pairs() -> Iterator[Pair]:
        return (pair for pair in task.read_pairs(data) if not _is_held_out(pair, share, seed))

    if experiment.train.init or experiment.text.tokenizer_file:
        tokenizers = _make_tokenizers(run, experiment, training_pairs, total, reporter)
    else:
        texts = (pair.source.replace("\t", " ") for pair in training_pairs())
        counted_texts = report_progress(texts, "reading for the vocabulary", total, reporter)
        learnt = learn_tokenizer(counted_texts, experiment.text, (CLS, MASK))
        tokenizers = Tokenizers(learnt, learnt)
    run.describe(experiment, tokenizers)
    encoder = make_text_encoder(experiment, tokenizers.source)
    size = tokenizers.source.vocabulary_size
    with disk_errors(run.data):
        train = tuple(
            write_labelled_corpus(
                run.data / f"train-{variant}",
                report_progress(training_pairs(), f"encoding {variant + 1}", total, reporter),
                encoder.with_encoding(_make_encoder(tokenizers.source, experiment, variant)),
                labels,
                size,
            )
            for variant in range(_count_variants(experiment))
        )
        if not len(train[0]):
            raise DataError("no texts are left to train on; give more, or change data.hold_out")
        valid_pairs = tuple(pair for pair in _read_validation_pairs(task, data, share, seed) if pair.source.strip())
        _check_labels(valid_pairs, experiment, reporter)
        write_atomically(run.data / "valid.json", json.dumps([[p.source, p.target] for p in valid_pairs]))
        valid = write_labelled_corpus(run.data / "valid", valid_pairs, encoder, labels, size) if valid_pairs else None
        written = [f"valid/{name}" for name in LABELLED_FILES if valid]
        write_manifest(run.data, [*_list_prepared_files(experiment), *written])
    empty = train[0].dropped.empty
    reporter.say(
        f"data: {counted(len(train[0]), 'text', ',')} to train on, {len(valid_pairs):,} for validation"
        + (f"; left out: {empty} empty" if empty else "; none left out")
    )
    facts: dict[str, object] = {"texts": len(train[0]), "validation_texts": len(valid_pairs)}
    return Prepared(tokenizers, train, valid, valid_pairs, facts | {"dropped": {"empty": empty}})


def _prepare_pictures(run: RunFolder, experiment: Experiment, total: int, reporter: Reporter) -> Prepared:
    """Write pictures as bytes of one size: those to train on and those to validate on."""
    data, model = experiment.data, experiment.model
    size, channels = model.image_size, model.channels
    share = _held_out_share(data, total, default_label_hold_out(total), "picture")
    bytes_only = learn_tokenizer(["\n"], experiment.text)
    tokenizers = Tokenizers(bytes_only, bytes_only)
    run.describe(experiment, tokenizers)
    with disk_errors(run.data):
        train, valid = (PictureWriter(run.data / part, model.labels, size, channels) for part in ("train", "valid"))
        pictures = report_progress(name_pictures(data.images), "reading pictures", total, reporter)
        for picture in pictures:
            pixels = picture.read(size, channels)
            (valid if is_held_out(pixels, share, experiment.seed) else train).add(pixels, picture.label)
        for picture in name_pictures(data.valid_images):
            if picture.label not in model.labels:
                raise DataError(f"{picture.name} has the label {picture.label!r}, which no training picture has")
            valid.add(picture.read(size, channels), picture.label)
        corpora = {"train": train.close(), "valid": valid.close()}
        write_manifest(run.data, [f"{part}/{name}" for part in corpora for name in PICTURE_FILES])
    if not len(corpora["train"]):
        raise DataError("no pictures are left to train on; give more, or change data.hold_out")
    missing = sorted(set(range(len(model.labels))) - {int(number) for number in corpora["valid"].labels})
    if missing and len(corpora["valid"]):
        names = ", ".join(model.labels[number] for number in missing[:_NAMED_LABELS])
        more = ", ..." if len(missing) > _NAMED_LABELS else ""
        reporter.say(f"warning: no validation picture has the label {names}{more}, so nothing shows how it is found")
    reporter.say(
        f"data: {counted(len(corpora['train']), 'picture', ',')} to train on, {len(corpora['valid']):,} for validation"
    )
    return _load_pictures(run, experiment, tokenizers)


def _load_pictures(run: RunFolder, experiment: Experiment, tokenizers: Tokenizers) -> Prepared:
    train, valid = PictureCorpus(run.data / "train"), PictureCorpus(run.data / "valid")
    facts: dict[str, object] = {"pictures": len(train), "validation_pictures": len(valid)}
    epochs = train.epochs(experiment.data.shift, experiment.data.flip)
    return Prepared(tokenizers, epochs, valid if len(valid) else None, (), facts)


def _prepare_captions(run: RunFolder, experiment: Experiment, total: int, reporter: Reporter) -> Prepared:
    """Learn the tokenizer, and write pictures of one size with their captions: to train on and to validate on."""
    data, size, seed = experiment.data, experiment.model.image_size, experiment.seed
    share = _held_out_share(data, total, default_label_hold_out(total), "picture")
    pictures = read_captioned(data.captions)
    if experiment.train.init or experiment.text.tokenizer_file:
        tokenizers = _make_tokenizers(run, experiment, lambda: iter(()), total, reporter)
    else:
        learnt = learn_tokenizer((text for each in pictures for text in each.captions), experiment.text, (START,))
        tokenizers = Tokenizers(learnt, learnt)
    run.describe(experiment, tokenizers)
    encode = CaptionEncoder(tokenizers.source, experiment.model.max_positions)
    vocabulary = tokenizers.source.vocabulary_size
    with disk_errors(run.data):
        train, valid = (CaptionWriter(run.data / part, size, vocabulary) for part in ("train", "valid"))
        for each in report_progress(iter(pictures), "reading pictures", total, reporter):
            pixels = each.read(size)
            (valid if is_held_out(pixels, share, seed) else train).add(pixels, encode(each.captions))
        for each in read_captioned(data.valid_captions) if data.valid_captions else ():
            valid.add(each.read(size), encode(each.captions))
        corpora = {"train": train.close(), "valid": valid.close()}
        write_manifest(run.data, [f"{part}/{name}" for part in corpora for name in CAPTION_FILES])
    if len(corpora["train"]) < 2:
        raise DataError("fewer than two pictures are left to train on; give more, or change data.hold_out")
    reporter.say(
        f"data: {counted(len(corpora['train']), 'picture', ',')} with {corpora['train'].count_captions().sum():,} "
        f"captions to train on, {len(corpora['valid']):,} for validation"
    )
    return _load_captions(run, experiment, tokenizers)


def _load_captions(run: RunFolder, experiment: Experiment, tokenizers: Tokenizers) -> Prepared:
    train, valid = CaptionCorpus(run.data / "train"), CaptionCorpus(run.data / "valid")
    facts: dict[str, object] = {"pictures": len(train), "validation_pictures": len(valid)}
    facts["captions"] = int(train.count_captions().sum())
    epochs = train.epochs(experiment.seed, experiment.data.shift, experiment.data.flip)
    return Prepared(tokenizers, epochs, valid if len(valid) else None, (), facts)


def make_text_encoder(experiment: Experiment, tokenizer: Tokenizer) -> TextEncoder:
    """How the models of this experiment read texts."""
    kind = find_encoder_kind(find_task(experiment.task).encoder)
    return TextEncoder(tokenizer, kind, experiment.model.max_positions)


def _check_labels(pairs: Sequence[Pair], experiment: Experiment, reporter: Reporter) -> None:
    """Refuse labels that the model does not have, and warn of those that cannot be validated."""
    seen = {label for pair in pairs for label in pair.target.split("\t")}
    labels = experiment.model.labels
    if unknown := sorted(seen - set(labels)):
        raise DataError(
            f"the validation texts have the label {unknown[0]!r}, which no training text has; "
            "correct it, or give training texts with it"
        )
    missing = [label for label in labels if label not in seen]
    if pairs and missing:
        names = ", ".join(missing[:_NAMED_LABELS]) + (", ..." if len(missing) > _NAMED_LABELS else "")
        reporter.say(f"warning: no validation text has the label {names}, so nothing shows how well it is found")


def _load_text(run: RunFolder, experiment: Experiment, tokenizers: Tokenizers) -> Prepared:
    context = experiment.model.max_positions
    train = TextCorpus(run.data / "train")
    valid = TextCorpus(run.data / "valid") if (run.data / "valid").exists() else None
    facts: dict[str, object] = {"characters": train.characters, "tokens": len(train)}
    facts |= {
        "validation_characters": valid.characters if valid else 0,
        "validation_tokens": len(valid) if valid else 0,
    }
    if find_task(experiment.task).encoder:
        special = SpecialIds.of(tokenizers.source)
        hidden = MaskedWindows(valid, context, special, 0) if valid else None
        return Prepared(tokenizers, MaskedEpochs(train, context, special), hidden, (), facts)
    return Prepared(tokenizers, train.epochs(context), valid.windows(context) if valid else None, (), facts)


def _held_out_characters(data: DataConfig, total: int) -> int:
    """The number of characters at the end of the text that are for validation."""
    if data.valid_text or data.hold_out == 0:
        return 0
    count = data.hold_out if data.hold_out > 0 else default_text_hold_out(total)
    if count >= total:
        raise ConfigError(
            f"data.hold_out is {data.hold_out}, but the text has only {counted(total, 'character')}; lower it"
        )
    return count


def load_prepared(run: RunFolder, experiment: Experiment, reporter: Reporter) -> Prepared:
    """Load the result of `prepare`; refuses data that has changed since the run began."""
    _check_prepared(run, experiment, reporter)
    _check_texts(run, reporter)
    tokenizers = run.tokenizers()
    task = find_task(experiment.task)
    if task.reads_stream:
        return _load_text(run, experiment, tokenizers)
    if task.reads_pictures:
        return _load_pictures(run, experiment, tokenizers)
    if task.matches_pictures:
        return _load_captions(run, experiment, tokenizers)
    valid_pairs = read_valid_pairs(run)
    if task.encoder:
        texts = tuple(LabelledCorpus(run.data / f"train-{number}") for number in range(_count_variants(experiment)))
        labelled = LabelledCorpus(run.data / "valid") if valid_pairs else None
        return Prepared(tokenizers, texts, labelled, valid_pairs, {})
    train = tuple(Corpus(run.data / f"train-{variant}") for variant in range(_count_variants(experiment)))
    valid = Corpus(run.data / "valid") if valid_pairs else None
    return _join_prepared(tokenizers, train, valid, valid_pairs, {}, experiment)


def count_examples(experiment: Experiment) -> int:
    """The number of pairs in the data, or of characters of plain text."""
    task = find_task(experiment.task)
    if task.reads_stream:
        return measure_text(experiment.data.text).characters
    if task.reads_pictures:
        return sum(1 for _ in name_pictures(experiment.data.images))
    if task.matches_pictures:
        return len(read_captioned(experiment.data.captions))
    return sum(1 for _ in task.read_pairs(experiment.data))


def describe_data(run: RunFolder, experiment: Experiment, prepared: Prepared) -> dict[str, object]:
    """The entry for about.json: files with their fingerprints, counts, languages."""
    data = experiment.data
    pairs = [*data.source, *data.target, *data.tsv, *data.valid_source, *data.valid_target]
    return {
        "files": {
            name: _describe_text(name, run)
            for name in (
                *pairs,
                *data.text,
                *data.valid_text,
                *data.images,
                *data.valid_images,
                *data.captions,
                *data.valid_captions,
            )
            if not Path(name).is_dir()  # a folder of pictures may change: the run folder has all that training needs
        },
        **prepared.facts,
    }


def _describe_pairs(
    train: Corpus, tokenizers: Tokenizers, task: Task, valid_pairs: Sequence[Pair], data: DataConfig
) -> dict[str, object]:
    return {
        "pairs": len(train),
        "validation_pairs": len(valid_pairs),
        "pieces_a_word": count_pieces_per_word(tokenizers, task, valid_pairs or task.read_pairs(data)),
        "dropped": {name: getattr(train.dropped, name) for name in DroppedPairs.__slots__},
        "source_language": data.source_language,
        "target_language": data.target_language,
    }


def count_pieces_per_word(tokenizers: Tokenizers, task: Task, pairs: Iterable[Pair]) -> dict[str, float]:
    """The mean number of pieces per word on each side, over the first pairs."""
    seen = [task.symbols(pair) for pair in islice(pairs, _SAMPLED_PAIRS)]
    sides = {
        "source": (tokenizers.source, [pair.source for pair in seen]),
        "target": (tokenizers.target, [pair.target for pair in seen]),
    }
    return {side: round(_mean_pieces(tokenizer, texts), 3) for side, (tokenizer, texts) in sides.items()}


def _mean_pieces(tokenizer: Tokenizer, texts: list[str]) -> float:
    pieces = sum(len(ids) - 1 for ids in tokenizer.encode_all(texts))  # without the end-of-sentence piece
    return pieces / max(1, sum(len(text.split()) for text in texts))


def _describe_text(name: str, run: RunFolder) -> dict[str, object]:
    """Facts that reveal changes of a text file; its path is relative to the run folder, which may move with it."""
    path = Path(name)
    state = path.stat()  # before it is read, so that a change in the meantime is noticed by its time
    place = name if path.is_absolute() else os.path.relpath(path.parent.resolve() / path.name, run.path.resolve())
    return {
        "sha256": fingerprint(path),
        "bytes": state.st_size,
        "modified": state.st_mtime_ns,
        "place": Path(place).as_posix(),
    }


def _list_prepared_files(experiment: Experiment) -> list[str]:
    """The files that every run of this experiment has in `data`, by their names in the manifest."""
    task = find_task(experiment.task)
    if task.reads_stream:
        return [f"train/{name}" for name in TEXT_FILES]
    if task.reads_pictures:
        return [f"train/{name}" for name in PICTURE_FILES]
    if task.matches_pictures:
        return [f"train/{name}" for name in CAPTION_FILES]
    corpora = [f"train-{variant}" for variant in range(_count_variants(experiment))]
    files = LABELLED_FILES if task.encoder else FILES
    return ["valid.json", *(f"{corpus}/{name}" for corpus in corpora for name in files)]


def _count_variants(experiment: Experiment) -> int:
    return experiment.text.bpe_variants if experiment.text.bpe_dropout else 1


def _check_prepared(run: RunFolder, experiment: Experiment, reporter: Reporter) -> None:
    """Verify that the token ids are as they were written."""
    if not (run.data / MANIFEST).exists():
        reporter.say(f"{run.data} has no {MANIFEST}: it is from an earlier version and cannot be verified")
        return
    try:
        check_manifest(run.data, required=_list_prepared_files(experiment))
    except DamagedError as error:
        raise FolderError(
            f"{run.data} has changed since this run prepared it ({error.reason}); "
            "restore it from a copy, or train in a new folder"
        ) from error


def _check_texts(run: RunFolder, reporter: Reporter) -> None:
    """Refuse text files that have changed. They may be gone, because the run folder has all that training needs."""
    match run.about().get("data"):
        case {"files": dict(files)}:
            gone = [name for name, facts in files.items() if not _is_same_text(name, facts, run)]
        case _:
            raise FolderError(f"{run.path}/about.json is damaged: it does not name the data; restore it from a copy")
    if gone:
        reporter.say(f"missing: {', '.join(gone)}; training continues with the text that it has prepared")


def _is_same_text(name: str, facts: object, run: RunFolder) -> bool:
    """True if it is the same, False if it is gone; refuses a changed one. Only a doubtful one is read."""
    match facts:
        case {"sha256": str(digest), "bytes": int(size), "modified": int(modified), "place": str(place)}:
            path = run.path.resolve() / place
        case str():  # an earlier version recorded nothing else
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


def _find_special_pieces(task: Task) -> tuple[str, ...]:
    """The special pieces that a vocabulary for this task has beside PAD and EOS."""
    if task.denoises:
        return SENTINELS
    if task.matches_pictures:
        return (START,)
    return (CLS, MASK) if task.encoder else ()


def _make_tokenizers(
    run: RunFolder, experiment: Experiment, pairs: Pairs, total: int, reporter: Reporter
) -> Tokenizers:
    text, more = experiment.text, _find_special_pieces(find_task(experiment.task))
    if experiment.train.init:
        return run.parent().tokenizers()
    if text.tokenizer_file:
        tokenizer = reuse_tokenizer(Path(text.tokenizer_file), more)
        reporter.say(f"vocabulary: {tokenizer.vocabulary_size} pieces of {text.tokenizer_file}")
        return Tokenizers(tokenizer, tokenizer)
    source_kind, target_kind = find_task(experiment.task).tokenizer_kinds(text.kind)
    # Take every n-th pair, so that the sample covers all files.
    stride = -(-2 * total // SAMPLE_LINES)

    def sample(what: str) -> Iterator[Pair]:
        return (
            pair for number, pair in enumerate(report_progress(pairs(), what, total, reporter)) if number % stride == 0
        )

    if text.vocabularies == "joint":
        lines = chain.from_iterable((pair.source, pair.target) for pair in sample("reading for the vocabulary"))
        joint = learn_tokenizer(lines, replace(text, kind=source_kind), more)
        return Tokenizers(joint, joint)
    sources = (pair.source for pair in sample("reading for the source vocabulary"))
    source = learn_tokenizer(sources, replace(text, kind=source_kind))
    targets = (pair.target for pair in sample("reading for the target vocabulary"))
    target = learn_tokenizer(targets, replace(text, kind=target_kind))
    return Tokenizers(source, target)


def _write_train_corpora(
    run: RunFolder, experiment: Experiment, tokenizers: Tokenizers, pairs: Pairs, total: int, reporter: Reporter
) -> Iterator[Corpus]:
    data, variants = experiment.data, _count_variants(experiment)
    size = max(tokenizers.source.vocabulary_size, tokenizers.target.vocabulary_size)
    for variant in range(variants):
        encoders = (
            _make_encoder(tokenizers.source, experiment, 2 * variant),
            _make_encoder(tokenizers.target, experiment, 2 * variant + 1),
        )
        what = "encoding" if variants == 1 else f"encoding {variant + 1}/{variants}"
        yield write_corpus(
            run.data / f"train-{variant}",
            report_progress(pairs(), what, total, reporter),
            encoders,
            size,
            PairLimits(data.max_length, data.max_ratio),
        )


def _make_encoder(tokenizer: Tokenizer, experiment: Experiment, stream: int) -> Encode:
    if not experiment.text.bpe_dropout:
        return tokenizer.encode_all
    dropout = BpeDropout(tokenizer, experiment.text.bpe_dropout)
    calls = iter(range(1 << 62))
    # Each portion of the corpus, each side and each variant has its own random stream.
    return lambda texts: dropout.encode_all(texts, hash((experiment.seed, stream, next(calls))))


def _write_valid_corpus(
    run: RunFolder, pairs: Sequence[Pair], tokenizers: Tokenizers, limits: PairLimits
) -> Corpus | None:
    if not pairs:
        return None
    size = max(tokenizers.source.vocabulary_size, tokenizers.target.vocabulary_size)
    encoders = (tokenizers.source.encode_all, tokenizers.target.encode_all)
    corpus = write_corpus(run.data / "valid", pairs, encoders, size, PairLimits(8 * limits.longest))
    if not len(corpus):
        raise DataError("all validation pairs are empty or too long; give other files, or set data.hold_out = 0")
    return corpus


def _held_out_share(data: DataConfig, total: int, default: int, noun: str = "pair") -> float:
    """The share of the training pairs that is held out for validation; `default` pairs if the user does not say."""
    given = data.valid_source or data.valid_images or data.valid_captions or data.valid_text
    if given or data.hold_out == 0 or not total:
        return 0.0
    count = data.hold_out if data.hold_out > 0 else default
    if count >= total:
        raise ConfigError(f"data.hold_out is {data.hold_out}, but there are only {counted(total, noun)}; lower it")
    return count / total


def _is_held_out(pair: Pair, share: float, seed: int) -> bool:
    """Decided by a hash of the source sentence, so that all its pairs are on the same side and none leaks."""
    if share == 0.0:
        return False
    digest = blake2b(pair.source.encode(), digest_size=8, key=seed.to_bytes(8, "little", signed=True)).digest()
    return int.from_bytes(digest, "little") < share * 2**64


def _read_validation_pairs(task: Task, data: DataConfig, share: float, seed: int) -> Iterable[Pair]:
    if data.valid_source or data.valid_text:
        return task.read_validation(data)
    return (pair for pair in task.read_pairs(data) if _is_held_out(pair, share, seed)) if share else ()


def _check_not_empty(corpus: Corpus, data: DataConfig) -> None:
    if not len(corpus):
        raise DataError(
            f"no pairs are left to train on: {corpus.dropped.empty} with an empty side and {corpus.dropped.too_long} "
            f"with over {counted(data.max_length, 'piece')} were left out; check the files with: heedful doctor"
        )


def _summarise(corpus: Corpus, validation: int, what: str) -> str:
    dropped = corpus.dropped
    reasons = [
        f"{count} {why}"
        for count, why in ((dropped.empty, "empty"), (dropped.too_long, "too long"), (dropped.uneven, "uneven"))
        if count
    ]
    left_out = f"; left out: {', '.join(reasons)}" if reasons else "; none left out"
    return f"data: {counted(len(corpus), what)} to train on, {validation} for validation{left_out}"


def _summarise_text(written: Mapping[str, TextCorpus], data: DataConfig) -> str:
    def describe(text: TextCorpus) -> str:
        return f"{counted(len(text), 'token', ',')} ({counted(text.characters, 'character', ',')})"

    if "valid" not in written:
        return f"data: {describe(written['train'])} to train on, none for validation"
    whose = "of the validation text" if data.valid_text else "at the end of the text"
    return f"data: {describe(written['train'])} to train on, {describe(written['valid'])} {whose} for validation"
