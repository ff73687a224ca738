"""Compare systems on one test set: models, which translate it, and files of translations."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path

from heedful.config import BleuTokens, Device, SearchConfig, change_search
from heedful.data.pairs import STANDARD_INPUT, AnyPath, Paths, list_files, read_lines
from heedful.errors import ConfigError, DataError, counted, did_you_mean
from heedful.evaluation.evaluate import load_translator
from heedful.metrics.bleu import split_words
from heedful.metrics.comparison import Comparison, EvaluationSet, System, compare_outputs
from heedful.progress import LoggingReporter, Reporter
from heedful.storage.model_names import built_in_models, find_model, is_model
from heedful.storage.run_folder import RunFolder
from heedful.tasks import find_task
from heedful.translation.engines import EngineChoice
from heedful.translation.translator import Translator

_LINES_AT_A_TIME = 8192


def compare(
    systems: Sequence[AnyPath],
    reference: Paths,
    source: AnyPath | None = None,
    *,
    search: Mapping[str, object] | None = None,
    tokenize: BleuTokens | None = None,
    device: Device = "auto",
    engine: EngineChoice = "auto",
    threads: int | None = None,
    reporter: Reporter | None = None,
) -> Comparison:
    """Compare two or more systems on a test set; the first is the baseline.

    A system is a model (a run folder or a built-in model), which translates `source`, or a file of translations. All
    files have one sentence per line; several references are several right answers. `search` changes keys of each
    model's own search, such as `{"beam": 8}`. `tokenize` is sacreBLEU's tokenizer; by default that of the models, or
    13a. `threads` is the number of PyTorch's threads: 0 for all cores, None to leave it unchanged.

    >>> import heedful
    >>> found = heedful.compare(["runs/old", "runs/new"], "test.de", "test.en")  # doctest: +SKIP
    """
    reporter = reporter or LoggingReporter()
    names, references = list_files(systems), list_files(reference)
    if len(names) < 2:
        only = f", not only {names[0]}" if names else ""
        raise ConfigError(f"give two or more systems to compare{only}")
    folders = {name: find_model(name) for name in names if not Path(name).is_file() and _is_meant_as_model(name)}
    if folders and not source:
        raise ConfigError(f"{next(iter(folders))} is a model, so it needs a text to translate; give it with --source")
    outputs = [name for name in names if name not in folders]
    test, lines = _read_files(str(source) if source else None, references, outputs)
    runs = {name: _open_run(folder) for name, folder in folders.items()}
    tokens = tokenize or common_tokenizer(list(runs.values()))
    translators = {name: load_translator(run, [], device, engine, threads, reporter) for name, run in runs.items()}
    searches = {name: change_search(translator.search, search or {}) for name, translator in translators.items()}
    shown = dict(zip(names, short_names(names), strict=True))
    for name, translator in translators.items():
        lines[name] = _translate(translator, searches[name], test, shown[name], reporter)
    found = [System(shown[name], lines[name]) for name in names]
    trained = next((name for name, run in runs.items() if (run.data / "train-0/corpus.json").exists()), None)
    if trained is None:
        return compare_outputs(found, test, tokens)
    seen = split_words(chain.from_iterable([*test.references, *lines.values()]), tokens)
    frequency = _count_training_words(runs[trained], set(chain.from_iterable(seen)), tokens, reporter)
    return compare_outputs(found, test, tokens, frequency, f"the training text of {shown[trained]}")


def short_names(paths: Sequence[str]) -> list[str]:
    """The last parts of each path, as few as tell different paths apart."""
    parts = [Path(path).parts or (path,) for path in paths]
    for count in range(1, max(map(len, parts))):
        names = ["/".join(some[-count:]) for some in parts]
        if len(set(names)) == len(set(paths)):
            return names
    return list(paths)


def common_tokenizer(runs: Sequence[RunFolder]) -> BleuTokens:
    """The tokenizer of BLEU in the experiments of all runs, which must agree; 13a if there are no runs."""
    wanted = {run.experiment().evaluate.tokenize: run for run in reversed(runs)}
    if len(wanted) > 1:
        each = ", ".join(f"{run.path} '{tokens}'" for tokens, run in reversed(wanted.items()))
        raise ConfigError(f"the runs have different evaluate.tokenize: {each}; choose one with --tokenize")
    return next(iter(wanted), "13a")


def _is_meant_as_model(name: str) -> bool:
    """Whether it is a model, or a misspelt name of a built-in one."""
    return is_model(name) or bool(did_you_mean(name, built_in_models()))


def _read_files(
    source: str | None, references: Sequence[str], outputs: Sequence[str]
) -> tuple[EvaluationSet, dict[str, tuple[str, ...]]]:
    """The test set, and the lines of all files; all must have the same number."""
    names = [*references, *([source] if source else []), *outputs]
    if names.count(STANDARD_INPUT) > 1:
        raise DataError("standard input (-) can be read only once; give files for the others")
    lines = {name: tuple(read_lines(Path(name))) for name in names}
    first = lines[names[0]]
    for name, several in lines.items():
        if len(several) != len(first):
            raise DataError(
                f"{names[0]} has {counted(len(first), 'line')} but {name} has {len(several)}; "
                "all files must pair up line by line"
            )
    test = EvaluationSet(tuple(lines[name] for name in references), lines[source] if source else None)
    return test, {name: lines[name] for name in outputs}


def _open_run(path: Path) -> RunFolder:
    """A run folder whose model translates."""
    run = RunFolder.open(path)
    if not (task := find_task(run.experiment().task)).translates:
        raise ConfigError(
            f"{path} is a model for {task.name}, but only translations are compared; "
            f"score it with: heedful evaluate {path}"
        )
    return run


def _translate(
    translator: Translator, search: SearchConfig, test: EvaluationSet, name: str, reporter: Reporter
) -> tuple[str, ...]:
    sources = test.sources or ()
    found = translator.translate_lines(
        sources,
        search=search,
        split_sentences=False,
        done=lambda count: reporter.progress(f"translating with {name}", count, len(sources)),
    )
    return tuple(translation.text for translation in found)


def _count_training_words(run: RunFolder, wanted: set[str], tokenize: BleuTokens, reporter: Reporter) -> Counter[str]:
    """The count of each wanted word in the target side of the training corpus."""
    found: Counter[str] = Counter()
    for words in split_words(_read_training_text(run, reporter), tokenize):
        found.update(word for word in words if word in wanted)
    return found


def _read_training_text(run: RunFolder, reporter: Reporter) -> Iterator[str]:
    from heedful.data.corpus import Corpus

    corpus, tokenizer = Corpus(run.data / "train-0"), run.tokenizers().target
    for start in range(0, len(corpus), _LINES_AT_A_TIME):
        places = range(start, min(start + _LINES_AT_A_TIME, len(corpus)))
        yield from tokenizer.decode_all([corpus.sentence("target", place).tolist() for place in places])
        reporter.progress("counting words of the training text", places.stop, len(corpus))
