"""Train a model from Python: `train` and `resume` do what `heedful train` does."""

import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from os import PathLike, fspath
from pathlib import Path
from threading import current_thread, main_thread
from types import FrameType
from typing import Any, Literal

from heedful.config import DataConfig, Experiment, load_recipe, merge
from heedful.data.captions import CaptionStatistics, measure_captions, read_captioned
from heedful.data.labels import LabelStatistics, find_encoder_kind, find_label_kind, measure_labels
from heedful.data.pictures import PictureStatistics, measure_pictures, name_pictures
from heedful.data.text import TextStatistics, measure_text
from heedful.errors import ConfigError, counted
from heedful.metrics.label_scores import MACRO_F1
from heedful.metrics.recall import RECALL
from heedful.metrics.text_loss import BITS_PER_CHARACTER
from heedful.progress import LoggingReporter, Reporter, SilentReporter, report_progress
from heedful.storage.run_folder import PRETRAINING, RunFolder, check_free
from heedful.tasks import Task, find_task, make_experiment
from heedful.tasks.completion import COMPLETION
from heedful.tasks.denoising import DENOISING
from heedful.tasks.labelling import MASKED
from heedful.tasks.picture_labelling import PICTURES
from heedful.tasks.picture_matching import CAPTIONS
from heedful.training.autoconfig import (
    ChosenSettings,
    CorpusStatistics,
    choose_caption_settings,
    choose_denoising_settings,
    choose_finetuning_settings,
    choose_label_settings,
    choose_masked_settings,
    choose_picture_settings,
    choose_settings,
    choose_text_settings,
    judge_few_pairs_by_score,
    keep_network,
    keep_pretrained_network,
    measure_corpus,
    warn_about_captions,
    warn_about_corpus,
    warn_about_labels,
    warn_about_text,
)
from heedful.training.counterpart import (
    WITHOUT,
    begin_comparison,
    check_comparable,
    describe_comparison,
    find_comparison,
)
from heedful.training.events import Event, Finished, Validated
from heedful.training.finetune import (
    inherit_languages,
    inherit_network,
    inherit_settings,
    is_pretrained,
    open_parent,
)
from heedful.training.prepare import check_evaluation_files, count_examples, match_files, resolve_files
from heedful.training.process_group import ProcessGroup, join_process_group
from heedful.training.run import EventStream, StopRequested, join_run, resume_run, start_run
from heedful.training.text_first import (
    begin_pretraining,
    check_learns_from_pairs,
    shared_settings,
    with_text_first,
)

Objective = Literal["next", "masked", "spans"]
_PICTURE_SIZES = ("image_size", "patch_size", "channels")
_TASKS: Mapping[Objective, Task] = {"next": COMPLETION, "masked": MASKED, "spans": DENOISING}

AnyPath = str | PathLike[str]
Paths = AnyPath | Sequence[AnyPath]
Settings = Mapping[str, Any]  # {"train": {"max_steps": 200}} or {"train.max_steps": 200}
OnEvent = Callable[[Event], None]


@dataclass(frozen=True, slots=True)
class TrainingResult:
    """The outcome of a training; `Translator.load(result.folder)` gives the model."""

    folder: Path
    steps: int
    reason: str  # why training ended: a limit, no better validation, or the name of a signal
    minutes: float
    weights: str  # which weights the run folder keeps; empty if a signal ended the training early
    perplexity: float | None  # of these weights in validation; None if they were not validated
    score: float | None  # of these weights in validation, by `metric`; None if they were not scored
    metric: str  # BLEU, F1 or accuracy; empty if they were not validated
    interrupted: bool  # whether a signal ended it early; `resume` continues
    score_without: float | None = None  # of a model that did not start from another; None if it was not compared


def train(
    recipe: AnyPath | None = None,
    *,
    source: Paths = (),
    target: Paths = (),
    tsv: Paths = (),
    text: Paths = (),
    valid_text: Paths = (),
    objective: Objective = "next",
    labels: Paths = (),
    valid_labels: Paths = (),
    images: Paths = (),
    valid_images: Paths = (),
    captions: Paths = (),
    valid_captions: Paths = (),
    valid_source: Paths = (),
    valid_target: Paths = (),
    out: AnyPath | None = None,
    init: AnyPath = "",
    compare: bool = False,
    settings: Settings | None = None,
    reporter: Reporter | None = None,
    on_event: OnEvent | None = None,
    stop_requested: StopRequested | None = None,
) -> TrainingResult:
    """Train a model from text files or from a recipe, in a new run folder.

    Without a recipe, the size of the model and the schedule are chosen to suit the data and the machine. With `init`,
    training starts from an existing model. Under torchrun, all processes call this and train together.

    Ctrl-C saves a checkpoint after the current step and raises KeyboardInterrupt; `resume` continues from there.

    Args:
        recipe: a complete experiment as a TOML file.
        source: text files with one sentence a line; a path or several, which may be gzipped.
        target: their translations, line by line.
        tsv: files with a source sentence, a tab and a target sentence on each line.
        text: files of plain text, from which a model learns to continue a text; each may be a pattern such as `*.txt`.
            Beside pairs, it is what the model reads first, and learns to restore spans of.
        valid_text: plain text to validate on; if you give none, the end of the text is held out.
        objective: what a model learns from plain text: the "next" token, tokens that are "masked", or "spans" left out.
        labels: files of lines with a label, a tab and a text; or of words with tags, as CoNLL-U or in two columns.
        valid_labels: such files to validate on; if you give none, some of the texts are held out.
        images: folders with one sub-folder of PNG or JPEG pictures for each class, or IDX files such as MNIST's.
        valid_images: the same to validate on; if you give none, some of the pictures are held out.
        captions: files of lines with the name of a picture, a tab and a caption; names are relative to the file.
        valid_captions: such files to validate on; if you give none, some of the pictures are held out.
        valid_source: text files to validate on; if you give none, some training pairs are held out.
        valid_target: their translations.
        out: the run folder to make; the default is `runs/` and the name of the recipe or of the first file.
        init: the model to start from: a built-in model, a run folder, an export or a checkpoint.
        compare: also train a second model that does not start from `init`, and report both scores. It takes about as
            long again; its run folder is `without/` in that of the first.
        settings: any keys of a recipe, such as `{"train.max_steps": 200}` or `{"train": {"max_steps": 200}}`.
        reporter: receives sentences and progress; the default logs them to the logger "heedful" at level INFO.
        on_event: called with each event of the training, such as `StepDone` and `Validated`.
        stop_requested: called after each step; a name such as "SIGTERM" saves a checkpoint and ends the training.
            With it, Ctrl-C is yours to handle.

    Raises:
        ConfigError: for a setting that does not exist or has a wrong value.
        DataError: for a file that cannot be read or used.
        FolderError: for a run folder that already exists.
        Diverged: if the loss becomes NaN or infinite.

    """
    paths = {
        **{"source": source, "target": target, "tsv": tsv, "text": text, "valid_text": valid_text},
        **{"valid_source": valid_source, "valid_target": valid_target},
    }
    if captions or valid_captions:
        others = {**paths, "labels": labels, "valid_labels": valid_labels, "images": images}
        _check_alone("captions", captions, {**others, "valid_images": valid_images})
        paths |= {"captions": captions, "valid_captions": valid_captions}
    if images or valid_images:
        _check_alone("images", images, {**paths, "labels": labels, "valid_labels": valid_labels})
        paths |= {"images": images, "valid_images": valid_images}
    if labels or valid_labels:
        _check_alone("labels", labels, paths)
        paths |= {"source": labels, "valid_source": valid_labels}
    files = {key: names for key, given in paths.items() if (names := _as_strings(given))}
    given = merge(_nest(settings or {}), {"train": {"init": fspath(init)}} if fspath(init) else {})
    given = merge(_name_task(files, bool(labels), bool(images), bool(captions)), given)
    text_first: dict[str, list[str]] = {}
    if text and (source or tsv):
        _check_text_first(objective, init)
        text_first = {key: files.pop(key) for key in ("text", "valid_text") if key in files}
    elif text:
        given = merge({"task": _TASKS[objective].name}, given)
    if recipe is None and not init and "task" not in given:
        _check_both_sides(files)
    folder = Path(out) if out is not None else _default_folder(recipe, files)

    def start(group: ProcessGroup, reporter: Reporter, stop: StopRequested) -> EventStream:
        if group.has_claimed(folder) and (folder / "experiment.toml").exists():
            reporter.say(f"torchrun has restarted the processes: resuming {folder}")
            group.claim(folder)
            return resume_run(folder, {}, reporter, stop, group)
        if (compare or text_first) and group.world_size > 1:
            raise ConfigError(
                "torchrun starts one training, but compare, and text beside pairs, are two; train one after the other"
            )
        check_free(folder)  # before the data is read, which may take minutes
        before = _plan_text_first(recipe, files, text_first, given, folder, reporter, group) if text_first else None
        experiment, pairs = _plan(recipe, files, given, folder, reporter, group, before)
        if compare:
            check_comparable(experiment)
            alone = merge(given, {"task": experiment.task, "train": {"init": ""}})
            without, _ = _plan(recipe, files, alone, folder, SilentReporter(), group)
            reporter.say(f"compare: afterwards a second model is trained from nothing in {folder / WITHOUT}")
        run = RunFolder.create(folder)
        group.claim(folder)
        if compare:
            begin_comparison(folder, experiment, without)
        if not before:
            return start_run(run, experiment, pairs, reporter, stop, group)
        begin_pretraining(run, before)
        run.begin(experiment)  # a run that is stopped while it reads the text goes on with the pairs
        return with_text_first(
            run, lambda: start_run(run, experiment, pairs, reporter, stop, group), reporter, stop, group
        )

    reporter = reporter or LoggingReporter()
    result = _run(start, folder, reporter, on_event, stop_requested)
    return _train_without(result, reporter, on_event, stop_requested)


def resume(
    folder: AnyPath,
    *,
    settings: Settings | None = None,
    reporter: Reporter | None = None,
    on_event: OnEvent | None = None,
    stop_requested: StopRequested | None = None,
) -> TrainingResult:
    """Continue the training in a run folder from its newest intact checkpoint, as if it had never stopped.

    `settings` can change when and where it runs, such as `{"train.max_steps": 2000}`. See `train` for the rest.
    """

    def start(group: ProcessGroup, reporter: Reporter, stop: StopRequested) -> EventStream:
        group.claim(Path(folder))
        pairs = partial(resume_run, Path(folder), _nest(settings or {}), reporter, stop, group)
        return with_text_first(RunFolder(Path(folder)), pairs, reporter, stop, group)

    reporter = reporter or LoggingReporter()
    result = _run(start, Path(folder), reporter, on_event, stop_requested)
    return _train_without(result, reporter, on_event, stop_requested)


def _check_text_first(objective: Objective, init: AnyPath) -> None:
    """Plain text beside pairs is read first, by restoring spans; a model that starts from another has done so."""
    if objective == "masked":
        raise ConfigError("objective is 'masked', but before pairs a model restores spans; leave objective out")
    if fspath(init):
        raise ConfigError(
            f"text beside pairs is for a new model, but init is {fspath(init)}; leave one out, or let that model read "
            "the text in a run of its own, with objective 'spans'"
        )


def _plan_text_first(
    recipe: AnyPath | None,
    files: Mapping[str, list[str]],
    text: Mapping[str, list[str]],
    given: Settings,
    folder: Path,
    reporter: Reporter,
    group: ProcessGroup,
) -> Experiment:
    """The experiment of the pre-training, with the network that suits the pairs and a vocabulary of the text."""
    tables = merge(load_recipe(Path(recipe)) if recipe else {}, given)
    check_learns_from_pairs(tables)
    reporter.say("plain text beside pairs: the model first learns to restore spans of it, then the pairs")
    alone, _ = _plan(recipe, files, given, folder, SilentReporter(), group)
    before, _ = _plan(None, text, shared_settings(alone, tables), folder / PRETRAINING, reporter, group)
    return before


def _train_without(
    result: TrainingResult, reporter: Reporter, on_event: OnEvent | None, stop_requested: StopRequested | None
) -> TrainingResult:
    """Train the second model of a comparison, if there is one, and add its score to the result of the first."""
    without = find_comparison(result.folder)
    if not without or result.interrupted:
        return result

    def start(group: ProcessGroup, reporter: Reporter, stop: StopRequested) -> EventStream:
        if without.prepared:
            return resume_run(without.path, {}, reporter, stop, group)
        experiment = without.experiment()
        return start_run(without, experiment, count_examples(experiment), reporter, stop, group)

    reporter.say(f"now from nothing, to compare: {without.path}")
    second = _run(start, without.path, reporter, on_event, stop_requested, result.folder)
    if second.interrupted:
        return replace(result, interrupted=True, steps=second.steps, reason=second.reason)
    reporter.say(describe_comparison(RunFolder(result.folder), without))
    return replace(result, score_without=second.score)


def _plan(
    recipe: AnyPath | None,
    files: Mapping[str, list[str]],
    given: Settings,
    folder: Path,
    reporter: Reporter,
    group: ProcessGroup,
    text_first: Experiment | None = None,
) -> tuple[Experiment, int]:
    """The complete experiment and the number of its pairs or characters; `text_first`: that of its pre-training.

    The data is read once, so mistakes in it show up here.
    """
    tables = merge(load_recipe(Path(recipe)) if recipe else {}, {"data": files} if files else {}, given)
    parent, inherited = _find_parent(tables)
    if text_first:
        inherited = inherit_network(text_first)
    asked = make_experiment(tables, inherited)
    if asked.model.family == "bert" and not find_task(asked.task).encoder:
        raise ConfigError(
            f"model.family is 'bert' but task is '{asked.task}', and BERT writes no text; give labels, or text with "
            "objective 'masked', or leave out model.family"
        )
    data = resolve_files(asked.data)
    if parent:
        data, warning = inherit_languages(data, parent)
        reporter.say(warning or f"starting from {asked.train.init}: its weights, network and vocabulary are kept")
    device = group.device(asked.train.device)
    task = find_task(asked.task)
    if asked.model.family == "vit" and not task.reads_pictures:
        raise ConfigError(
            f"model.family is 'vit', which reads pictures, but task is '{task.name}'; name pictures: images"
        )
    if asked.model.family == "clip" and not task.matches_pictures:
        raise ConfigError(
            f"model.family is 'clip', which reads captioned pictures, but task is '{task.name}'; name them: captions"
        )
    check_evaluation_files(task, data)
    corpus, total = _measure(task, data, reporter)
    experiment, before = asked, text_first or (parent.experiment() if parent else None)
    if before or not recipe:
        experiment = _autoconfigure(asked, tables, inherited, before, corpus, device.type, reporter)
    if text_first:
        experiment = replace(experiment, train=replace(experiment.train, init=str(folder / PRETRAINING)))
    if isinstance(corpus, LabelStatistics | PictureStatistics):
        known = set(corpus.names) <= set(experiment.model.labels)  # as in a model that is trained on
        names = experiment.model.labels if known else corpus.names
        experiment = replace(experiment, model=replace(experiment.model, labels=names))
    data = replace(data, hold_out=experiment.data.hold_out, shift=experiment.data.shift)
    return replace(experiment, data=data, name=experiment.name or folder.resolve().name), total


Statistics = CorpusStatistics | TextStatistics | LabelStatistics | PictureStatistics | CaptionStatistics


def _measure(task: Task, data: DataConfig, reporter: Reporter) -> tuple[Statistics, int]:
    """The size of the data, and the number of its pairs or characters; warns about what teaches little."""
    if (task.reads_stream or task.denoises) and not data.text:
        raise ConfigError(f"task is '{task.name}', which learns from plain text; name it with text, or data.text")
    if task.reads_stream:
        text = measure_text(data.text)
        for sentence in warn_about_text(text):
            reporter.say(sentence)
        return text, text.characters
    if task.reads_pictures:
        return _measure_pictures(data, reporter)
    if task.matches_pictures:
        return _measure_captions(data, reporter)
    if task.encoder:
        counted_pairs = report_progress(task.read_pairs(data), "reading", 0, reporter)
        labels = measure_labels(counted_pairs, find_encoder_kind(task.encoder))
        for sentence in warn_about_labels(labels.labels):
            reporter.say(sentence)
        return labels, labels.texts
    pairs = (task.symbols(pair) for pair in task.read_pairs(data))
    corpus = measure_corpus(report_progress(pairs, "reading", 0, reporter))
    if task.translates:
        for sentence in warn_about_corpus(corpus, data):
            reporter.say(sentence)
    return corpus, corpus.pairs


def _measure_pictures(data: DataConfig, reporter: Reporter) -> tuple[PictureStatistics, int]:
    if not data.images:
        raise ConfigError("task is 'pictures', which learns from pictures; name them with images, or data.images")
    pictures = measure_pictures(report_progress(name_pictures(data.images), "reading", 0, reporter))
    for sentence in warn_about_labels(pictures.labels):
        reporter.say(sentence)
    return pictures, pictures.pictures


def _measure_captions(data: DataConfig, reporter: Reporter) -> tuple[CaptionStatistics, int]:
    if not data.captions:
        raise ConfigError("task is 'captions', which needs captioned pictures; name them: captions, or data.captions")
    captioned = read_captioned(data.captions)
    captions = measure_captions(report_progress(iter(captioned), "reading", len(captioned), reporter))
    for sentence in warn_about_captions(captions):
        reporter.say(sentence)
    return captions, captions.pictures


def _find_parent(tables: Settings) -> tuple[RunFolder | None, dict[str, Any]]:
    """The model that training starts from, if any, and the settings that it passes on."""
    table = tables.get("train")
    init = table.get("init") if isinstance(table, dict) else ""
    if not isinstance(init, str) or not init:
        return None, {}
    parent = open_parent(init)
    return parent, inherit_settings(parent, tables)


def _autoconfigure(
    asked: Experiment,
    tables: Settings,
    inherited: Settings,
    before: Experiment | None,
    corpus: Statistics,
    device: str,
    reporter: Reporter,
) -> Experiment:
    """Choose the settings that the tables leave open by the data, and report each choice with its reason."""
    given = tables.get("train", {})
    validation = ("valid_source", "valid_text", "valid_images", "valid_captions")
    hold_out = not any(tables.get("data", {}).get(key) for key in validation)
    if isinstance(corpus, PictureStatistics | CaptionStatistics):
        chosen = _choose_for_pictures(corpus, before, device, tables)
    elif isinstance(corpus, LabelStatistics):
        kind = find_encoder_kind(find_task(asked.task).encoder)
        chosen = choose_label_settings(corpus, kind, device, tables)
        if before:
            chosen = keep_network(chosen, before)
    elif before and is_pretrained(before) and asked.task != before.task and isinstance(corpus, CorpusStatistics):
        chosen = keep_pretrained_network(_choose_for_pairs(asked, tables, corpus, device, model=True))
    elif before:
        chosen = choose_finetuning_settings(corpus, before, device, given, hold_out=hold_out)
    elif isinstance(corpus, TextStatistics):
        masked = find_task(asked.task).encoder is not None
        chosen = (choose_masked_settings if masked else choose_text_settings)(corpus, device, tables)
    elif find_task(asked.task).denoises:
        chosen = choose_denoising_settings(corpus, device, tables)
    else:
        chosen = _choose_for_pairs(asked, tables, corpus, device, model="preset" not in tables.get("model", {}))
    if not hold_out:
        chosen.reasons.pop("data.hold_out", None)
    for key, reason in chosen.reasons.items():
        table, _, name = key.partition(".")
        if not name or name not in tables.get(table, {}):
            reporter.say(reason)
    return make_experiment(tables, merge(inherited, chosen.tables))


def _name_task(files: Mapping[str, list[str]], labels: bool, images: bool, captions: bool) -> Settings:
    """The task that labelled texts, labelled pictures or captioned pictures name."""
    if labels:
        found = [str(path) for name in files["source"] for path in match_files(Path(), name)]
        return {"task": find_label_kind(found)}
    if images:
        return {"task": PICTURES.name}
    return {"task": CAPTIONS.name} if captions else {}


def _choose_for_pictures(
    corpus: PictureStatistics | CaptionStatistics, before: Experiment | None, device: str, tables: Settings
) -> ChosenSettings:
    """The choices for labelled or captioned pictures; a model to start from keeps its sizes."""
    network = {"model": {key: getattr(before.model, key) for key in _PICTURE_SIZES}} if before else {}
    asked = merge(network, tables)
    if isinstance(corpus, PictureStatistics):
        chosen = choose_picture_settings(corpus, device, asked)
    else:
        chosen = choose_caption_settings(corpus, device, asked)
    return keep_network(chosen, before) if before else chosen


def _choose_for_pairs(
    asked: Experiment, tables: Settings, corpus: CorpusStatistics, device: str, *, model: bool
) -> ChosenSettings:
    """The choices for a model that has yet to learn from pairs."""
    task = find_task(asked.task)
    symbols = set(task.tokenizer_kinds(asked.text.kind)) == {"symbols"}
    search = model and task.translates and not {"alpha", "penalty"} & tables.get("search", {}).keys()
    chosen = choose_settings(corpus, device, tables.get("train", {}), model=model, symbols=symbols, search=search)
    return judge_few_pairs_by_score(chosen, corpus.pairs) if task.translates else chosen


def _run(
    start: Callable[[ProcessGroup, Reporter, StopRequested], EventStream],
    folder: Path,
    reporter: Reporter,
    on_event: OnEvent | None,
    stop_requested: StopRequested | None,
    resumed: Path | None = None,
) -> TrainingResult:
    """Train as one of the processes that torchrun started, or alone; `resumed`: the folder to resume if not this."""
    with nullcontext(stop_requested) if stop_requested else _catch_ctrl_c() as stop, join_process_group() as group:
        if group.is_first:
            result = _follow(start(group, reporter, stop), folder, reporter, on_event)
        else:
            silent = SilentReporter()
            result = _follow(join_run(folder, silent, stop, group), folder, silent, None)
    if result.interrupted and not stop_requested:
        raise KeyboardInterrupt(
            f"saved at step {result.steps}; continue with heedful.resume({str(resumed or folder)!r})"
        )
    return result


def _follow(events: EventStream, folder: Path, reporter: Reporter, on_event: OnEvent | None) -> TrainingResult:
    """Report validations and the end, and pass every event on."""
    with closing(events):
        for event in events:
            if on_event:
                on_event(event)
            match event:
                case Validated():
                    reporter.say(_describe_validation(event))
                case Finished():
                    if not event.interrupted:
                        reporter.say(
                            f"done after {counted(event.step, 'step')} and {event.minutes:.1f} minutes: "
                            f"{event.reason}; model: {event.model}"
                        )
                    return _make_result(event, folder)
                case _:
                    pass
    raise AssertionError("the last event of a training is Finished")


def _describe_validation(event: Validated) -> str:
    when = f"step {event.step}" if event.step else "before the first step"
    best = " (best so far)" if event.best and event.step else ""
    if event.metric == BITS_PER_CHARACTER:
        return (
            f"{when}: validation loss {event.loss:.4f} nats a token, perplexity {event.perplexity:.2f}, "
            f"{event.score:.3f} bits per character{best}"
        )
    if event.metric in (MACRO_F1, RECALL):
        return f"{when}: validation loss {event.loss:.4f}, {event.metric} {event.score:.2f}{best}"
    score = "" if event.score is None else f", {event.metric} {event.score:.2f}"
    if event.brevity_penalty is not None:
        score += f" (brevity penalty {event.brevity_penalty:.3f})"
    return f"{when}: validation perplexity {event.perplexity:.2f}{score}{best}"


def _make_result(finished: Finished, folder: Path) -> TrainingResult:
    kept = RunFolder(folder).validation()
    return TrainingResult(
        folder,
        finished.step,
        finished.reason,
        finished.minutes,
        finished.model,
        kept.perplexity if kept else None,
        kept.score if kept else None,
        kept.metric if kept else "",
        finished.interrupted,
    )


@contextmanager
def _catch_ctrl_c() -> Iterator[StopRequested]:
    """Make the first Ctrl-C a request to stop once training has begun; the second interrupts at once.

    A handler that the program has set itself stays, and so does everything outside the main thread.
    """
    came = training = False

    def stop_requested() -> str:
        nonlocal training
        training = True
        return "SIGINT" if came else ""

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal came
        if came or not training:
            raise KeyboardInterrupt
        came = True

    if current_thread() is not main_thread() or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield stop_requested
        return
    signal.signal(signal.SIGINT, handle)
    try:
        yield stop_requested
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _as_strings(paths: Paths) -> list[str]:
    return [fspath(paths)] if isinstance(paths, str | PathLike) else [fspath(path) for path in paths]


def _nest(settings: Settings) -> dict[str, Any]:
    """Nested tables of settings whose keys may contain dots."""
    tables: dict[str, Any] = {}
    for key, value in settings.items():
        entry: Any = fspath(value) if isinstance(value, PathLike) else value
        entry = _nest(entry) if isinstance(entry, Mapping) else entry
        for part in reversed(key.split(".")):
            entry = {part: entry}
        tables = merge(tables, entry)
    return tables


def _check_alone(name: str, given: Paths, paths: Mapping[str, Paths]) -> None:
    """Labelled texts, and pictures, need no other files."""
    if not given:
        raise ConfigError(f"valid_{name} needs {name} to train on")
    for key, names in paths.items():
        if names:
            raise ConfigError(f"{key} and {name} are for different models; leave one of them out")


def _check_both_sides(files: Mapping[str, list[str]]) -> None:
    """Only tasks other than translation have files that hold both sides."""
    for prefix in ("", "valid_"):
        source, target = f"{prefix}source", f"{prefix}target"
        if (source in files) != (target in files):
            raise ConfigError(
                f"{source} and {target} go together; give both, or choose a task whose files hold both sides, "
                "such as task = 'pronunciation'"
            )


def _default_folder(recipe: AnyPath | None, files: Mapping[str, list[str]]) -> Path:
    if recipe:
        return Path("runs") / Path(recipe).stem
    kinds = ("source", "tsv", "text", "images", "captions")
    first = next((files[kind][0] for kind in kinds if files.get(kind)), "model")
    name = Path(first).name.split(".")[0]
    return Path("runs") / ("".join(letter for letter in name if letter not in "*?[]") or "model")
