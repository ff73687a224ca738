"""Translate a test set with a model, and score the outputs; or score how well a model predicts a text."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from heedful.config import BleuTokens, Device, SearchConfig, change_search
from heedful.data.pairs import AnyPath, Paths, guess_language, list_files
from heedful.errors import ConfigError, DataError, HeedfulError, require_library
from heedful.metrics import Score
from heedful.progress import LoggingReporter, Reporter, report_progress
from heedful.storage.files import write_atomically
from heedful.storage.model_names import find_model, is_built_in
from heedful.storage.run_folder import RunFolder
from heedful.tasks import Question, ScoringOptions, find_task
from heedful.translation.engines import EngineChoice
from heedful.translation.translator import Translator

if TYPE_CHECKING:
    from heedful.metrics.label_scores import LabelReport

CONFUSION_FILE = "confusion.svg"

_NAMED_LABELS = 10  # in an error
_TEXTS_AT_A_TIME = 4096
_PICTURES_AT_A_TIME = 512
_WINDOWS_AT_A_TIME = 32  # of a text


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The outputs of a model for a test set, in its order, and their scores."""

    outputs: tuple[str, ...]
    scores: tuple[Score, ...]
    labels: "LabelReport | None" = None  # of a model that labels texts or tags words


@dataclass(frozen=True, slots=True)
class EvaluationFiles:
    """The files of a test set; `references` has one list of files for each set of references."""

    sources: tuple[str, ...]
    references: tuple[tuple[str, ...], ...]


def evaluate(
    model: AnyPath,
    source: AnyPath | None = None,
    reference: Paths = (),
    *,
    others: Sequence[AnyPath] = (),
    search: Mapping[str, object] | None = None,
    tokenize: BleuTokens | None = None,
    language: str = "",
    device: Device = "auto",
    engine: EngineChoice = "auto",
    threads: int | None = None,
    reporter: Reporter | None = None,
) -> Evaluation:
    """Translate a test set, score the outputs, and store the scores in the model's run folder.

    A model that continues text is scored by how well it predicts the text `source`. A model of labels is scored by
    those that it finds in `source`, a file or folder like those that it learnt from; a model of captions by how often
    it finds the right picture for a caption of the file `source` among all of its pictures, and the other way round.

    `model` is a run folder or the name of a built-in model; with `others`, they form an ensemble. Without `source`, the
    test set is the experiment's (`data.test_source`). Several references are several right answers for each line.
    `search` changes keys of the model's own search, such as `{"beam": 8}`. `tokenize` is sacreBLEU's tokenizer,
    `language` the target language; if they are missing, the experiment and the file names decide. `threads` is the
    number of PyTorch's threads: 0 for all cores, None to leave it unchanged.

    >>> import heedful
    >>> heedful.evaluate("en-de", "test.en", "test.de").scores  # doctest: +SKIP
    """
    reporter = reporter or LoggingReporter()
    run = RunFolder.open(find_model(model))
    task = find_task(run.experiment().task)
    if task.continues_text:
        return _evaluate_text(run, find_test_files(run, source, reference), device, threads, reporter)
    if task.reads_pictures:
        return _evaluate_pictures(run, find_test_files(run, source, reference), device, threads, reporter)
    if task.matches_pictures:
        return _evaluate_captions(run, find_test_files(run, source, reference), device, threads, reporter)
    if task.encoder:
        return _evaluate_labels(run, find_test_files(run, source, reference), device, threads, reporter)
    require_library("scoring translations", "sacrebleu")  # and do not find out after translating
    experiment, files = run.experiment(), find_test_files(run, source, reference)
    questions = find_task(experiment.task).read_questions(files.sources, files.references)
    more = [RunFolder.open(find_model(other)) for other in others]
    translator = load_translator(run, more, device, engine, threads, reporter)
    config = change_search(translator.search, search or {})
    named = guess_language(files.references[0][0]) if files.references else ""
    scoring = ScoringOptions(
        tokenize or experiment.evaluate.tokenize, language or named or experiment.data.target_language
    )
    found = evaluate_translator(translator, questions, config, scoring, reporter)
    if not more and not is_built_in(run.path):  # an ensemble's scores are not the run's
        _store_scores(run, files, {"beam": config.beam, "alpha": config.alpha}, found, reporter)
    return found


def _evaluate_text(
    run: RunFolder, files: EvaluationFiles, device: Device, threads: int | None, reporter: Reporter
) -> Evaluation:
    """Loss, perplexity and bits per character of plain text, which is read in windows as in validation."""
    from tempfile import TemporaryDirectory

    from heedful.completion.completer import Completer
    from heedful.data.text import TextSpan, measure_text, write_text_corpus
    from heedful.device import use_threads
    from heedful.metrics.text_loss import score_text

    if files.references:
        raise ConfigError(f"{files.references[0][0]}: a model that continues text needs no --reference; leave it out")
    if threads is not None:
        use_threads(threads)
    characters = measure_text(files.sources).characters
    completer, context = Completer.from_run(run, device), run.experiment().model.max_positions
    losses, lengths = list[float](), list[int]()
    with TemporaryDirectory() as folder:
        text = write_text_corpus(Path(folder), TextSpan(files.sources, 0, characters), completer.tokenizer)
        windows = text.windows(context)
        if not len(windows):
            raise DataError(f"{files.sources[0]} has only one token, so there is nothing to predict; give more text")
        for first in range(0, len(windows), _WINDOWS_AT_A_TIME):
            numbers = range(first, min(first + _WINDOWS_AT_A_TIME, len(windows)))
            found = completer.log_probs([windows.tokens(number).tolist() for number in numbers])
            losses += [-sum(each) for each in found]
            lengths += [len(each) for each in found]
            reporter.progress("reading", len(lengths), len(windows))
    evaluation = Evaluation((), tuple(score_text(losses, lengths, windows.tokens_per_character, context)))
    _store_scores(run, files, {}, evaluation, reporter)
    return evaluation


def _evaluate_labels(
    run: RunFolder, files: EvaluationFiles, device: Device, threads: int | None, reporter: Reporter
) -> Evaluation:
    """Accuracy, macro F1, the scores of each label and the confusion matrix, which is drawn into the run folder."""
    from heedful.classification.classifier import Classifier
    from heedful.device import use_threads
    from heedful.metrics.label_scores import report_labels

    classifier = Classifier.from_run(run, device)
    if files.references:
        raise ConfigError(f"{files.references[0][0]}: labels stand beside the texts; leave out --reference")
    if threads is not None:
        use_threads(threads)
    pairs = [pair for pair in find_task(run.experiment().task).read_files(files.sources, ()) if pair.source.strip()]
    gold = [pair.target.split("\t") for pair in pairs]
    if not pairs:
        raise DataError(f"{files.sources[0]} holds no labelled texts, so there is nothing to score")
    numbers = _number_labels(classifier.labels, ((files.sources[0], label) for labels in gold for label in labels))
    found = list[list[int]]()
    for first in range(0, len(pairs), _TEXTS_AT_A_TIME):
        some = pairs[first : first + _TEXTS_AT_A_TIME]
        found += [rows.argmax(-1).tolist() for rows in classifier.probabilities([pair.source for pair in some])]
        reporter.progress("classifying", len(found), len(pairs))
    texts = [([numbers[label] for label in right], ours) for right, ours in zip(gold, found, strict=True)]
    outputs = tuple("\t".join(classifier.labels[number] for number in ours) for ours in found)
    return _report_labels(run, files, outputs, report_labels(texts, classifier.labels), reporter)


def _evaluate_pictures(
    run: RunFolder, files: EvaluationFiles, device: Device, threads: int | None, reporter: Reporter
) -> Evaluation:
    """The same for pictures: folders of classes, or IDX files, of which the test set is meant if there are two."""
    from heedful.classification.picture_classifier import PictureClassifier
    from heedful.data.pictures import name_pictures
    from heedful.device import use_threads
    from heedful.metrics.label_scores import report_labels

    classifier = PictureClassifier.from_run(run, device)
    if files.references:
        raise ConfigError(f"{files.references[0][0]}: folders and files name the labels; leave out --reference")
    if threads is not None:
        use_threads(threads)
    pictures = list(name_pictures(files.sources, test=True))
    numbers = _number_labels(classifier.labels, ((one.name, one.label) for one in pictures))
    config, found = classifier.model.config, list[int]()
    for first in range(0, len(pictures), _PICTURES_AT_A_TIME):
        some = pictures[first : first + _PICTURES_AT_A_TIME]
        pixels = [one.read(config.image_size, config.channels) for one in some]
        found += classifier.probabilities(pixels).argmax(-1).tolist()
        reporter.progress("classifying", len(found), len(pictures))
    answers = [([numbers[one.label]], [ours]) for one, ours in zip(pictures, found, strict=True)]
    outputs = tuple(classifier.labels[number] for number in found)
    return _report_labels(run, files, outputs, report_labels(answers, classifier.labels), reporter)


def _evaluate_captions(
    run: RunFolder, files: EvaluationFiles, device: Device, threads: int | None, reporter: Reporter
) -> Evaluation:
    """Recall at 1, 5 and 10 of pictures for a caption and of captions for a picture, with that of chance."""
    from heedful.data.captions import read_captioned
    from heedful.device import use_threads
    from heedful.metrics.recall import score_ranks
    from heedful.retrieval.finder import Finder
    from heedful.retrieval.vectors import rank_both_ways

    finder = Finder.from_run(run, device)
    if files.references:
        raise ConfigError(f"{files.references[0][0]}: captions stand beside the pictures; leave out --reference")
    if threads is not None:
        use_threads(threads)
    pictures, size = read_captioned(files.sources), finder.model.config.image_size
    counted_pictures = report_progress(iter(pictures), "reading pictures", len(pictures), reporter, every=100)
    pixels = [each.read(size) for each in counted_pictures]
    captions = [finder.encoder(each.captions) for each in pictures]
    by_text, by_picture = rank_both_ways(finder.model, pixels, captions)
    scores = (*score_ranks(by_text, "text to picture"), *score_ranks(by_picture, "picture to text"))
    evaluation = Evaluation((), scores)
    _store_scores(run, files, {}, evaluation, reporter)
    return evaluation


def _number_labels(known: Sequence[str], used: Iterable[tuple[str, str]]) -> dict[str, int]:
    """The number of each label; `used` has the labels of the test set, each with the name of its file."""
    numbers = {label: number for number, label in enumerate(known)}
    for name, label in used:
        if label not in numbers:
            raise DataError(
                f"{name} has the label {label!r}, which the model does not know; it knows "
                f"{', '.join(known[:_NAMED_LABELS])}{', ...' if len(known) > _NAMED_LABELS else ''}"
            )
    return numbers


def _report_labels(
    run: RunFolder, files: EvaluationFiles, outputs: tuple[str, ...], report: "LabelReport", reporter: Reporter
) -> Evaluation:
    """Draw the confusion matrix and store the scores in the run folder."""
    from heedful.evaluation.confusion_picture import draw_confusion

    evaluation = Evaluation(outputs, report.scores, report)
    name = ", ".join(Path(source).name for source in files.sources)
    try:
        write_atomically(run.path / CONFUSION_FILE, draw_confusion(report, name))
    except HeedfulError as error:  # the folder may be read-only
        reporter.say(f"the confusion matrix is not drawn into the run folder: {error}")
    _store_scores(run, files, {}, evaluation, reporter)
    return evaluation


def evaluate_translator(
    translator: Translator,
    questions: Sequence[Question],
    search: SearchConfig,
    scoring: ScoringOptions,
    reporter: Reporter,
) -> Evaluation:
    """Answer the questions, and score the answers by the metrics of the translator's task."""
    lines = translator.translate_lines(
        [question.source for question in questions],
        search=search,
        split_sentences=False,
        done=lambda count: reporter.progress("translating", count, len(questions)),
    )
    outputs = tuple(line.text for line in lines)
    references = [question.references for question in questions]
    return Evaluation(outputs, tuple(translator.task.score(outputs, references, scoring)))


def find_test_files(run: RunFolder, source: AnyPath | None = None, reference: Paths = ()) -> EvaluationFiles:
    """The given files, or those that the run's experiment names."""
    experiment, references = run.experiment(), list_files(reference)
    data, task = experiment.data, find_task(experiment.task)
    two_files = task.files == "two"
    if source:
        if two_files and not references:
            raise ConfigError(f"--source {source} needs --reference, its human translation")
        return EvaluationFiles((str(source),), tuple((name,) for name in references))
    if references:
        raise ConfigError(f"--reference {references[0]} needs --source, the text that it translates")
    if not data.test_source:
        more = " and --reference" if two_files else ""
        raise ConfigError(f"there is no test set: give --source{more}, because the run has no data.test_source")
    return EvaluationFiles(data.test_source, (data.test_target,) if data.test_target else ())


def load_translator(
    run: RunFolder,
    others: Sequence[RunFolder],
    device: Device,
    engine: EngineChoice,
    threads: int | None,
    reporter: Reporter,
) -> Translator:
    """Load a model, or several as an ensemble, and set the number of PyTorch's threads (None: unchanged)."""
    translator = Translator.from_run(run, device, engine, others, reporter.say)
    if threads is not None and translator.engine.name == "torch":
        from heedful.device import use_threads

        use_threads(threads)
    return translator


def _store_scores(
    run: RunFolder, files: EvaluationFiles, search: Mapping[str, object], found: Evaluation, reporter: Reporter
) -> None:
    scores = [asdict(score) for score in found.scores]
    try:
        run.add_scores(", ".join(files.sources), {**search, "scores": scores})
    except HeedfulError as error:  # the folder may be read-only
        reporter.say(f"the scores are not stored in the run folder: {error}")
