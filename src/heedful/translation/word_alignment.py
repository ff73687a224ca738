"""Find the best aligner of a run once, on its validation pairs, and save it in the run folder."""

from collections.abc import Iterable, Iterator
from itertools import islice

from heedful.attention.aligner import (
    DEFAULT_ALIGNER,
    Aligner,
    AlignerChoice,
    WordPair,
    choose_aligner,
    list_aligners,
    make_word_pair,
)
from heedful.data.pairs import Pair
from heedful.errors import ConfigError, HeedfulError
from heedful.models.seq2seq import AnySeq2Seq
from heedful.progress import Reporter
from heedful.storage.run_folder import RunFolder, Tokenizers, read_valid_pairs
from heedful.translation.translator import Translator

_PAIRS = 50
_MAX_PIECES = 40  # on either side


def find_aligner(run: RunFolder, translator: Translator, report: Reporter) -> Aligner:
    """The aligner that is saved in the folder, or the best on its validation pairs, or the default."""
    model = translator.model
    if not translator.task.aligns_words:
        raise ConfigError(
            f"--alignments links words, but {run.path} is a model for {translator.task.name}, whose outputs do not "
            "come from single words; leave it out"
        )
    if not can_align(translator):
        raise ConfigError(
            f"--alignments needs attention to the source, which the model of {run.path} does not have; leave it out"
        )
    if saved := _read_saved(run, model):
        return saved
    pairs = read_valid_pairs(run) if (run.data / "valid.json").exists() else ()
    choice = _choose_best(translator, pairs)
    if not choice:
        report.say(
            f"no validation pairs to choose an aligner by; alignments come from {DEFAULT_ALIGNER}, over all heads"
        )
        return DEFAULT_ALIGNER
    report.say(f"alignments come from {choice.aligner}, the best on the validation pairs")
    try:
        _save(run, choice)
    except HeedfulError as error:  # the folder may be read-only
        report.say(f"the choice could not be saved in the run folder: {error}")
    return choice.aligner


def save_best_aligner(run: RunFolder, translator: Translator, pairs: Iterable[Pair]) -> None:
    """Find the best aligner and save it in the folder, if the model can align words."""
    if can_align(translator) and (choice := _choose_best(translator, pairs)):
        _save(run, choice)


def can_align(translator: Translator) -> bool:
    """Whether outputs come from single words of the source, and the model attends to it."""
    return bool(translator.model.attentions.get("cross")) and translator.task.aligns_words


def _choose_best(translator: Translator, pairs: Iterable[Pair]) -> AlignerChoice | None:
    seen = (translator.task.symbols(pair) for pair in pairs)
    sample = list(islice(_make_short_pairs(translator.tokenizers, seen), _PAIRS))
    return choose_aligner(translator.model, sample) if sample else None


def _make_short_pairs(tokenizers: Tokenizers, pairs: Iterable[Pair]) -> Iterator[WordPair]:
    source, target = tokenizers.source, tokenizers.target
    for pair in pairs:
        if pair.source.strip() and pair.target.strip():
            found = make_word_pair(source, target, pair.source, target.encode(pair.target))
            if max(len(found.source), len(found.target)) <= _MAX_PIECES:
                yield found


def _save(run: RunFolder, choice: AlignerChoice) -> None:
    """Save the choice with the id of the weights, because training may change them later."""
    facts = {"from": str(choice.aligner), "agreement": choice.agreement, "words": choice.words, "model": run.note()}
    run.write_about({"alignment": facts})


def _read_saved(run: RunFolder, model: AnySeq2Seq) -> Aligner | None:
    """The saved aligner, if it belongs to these weights."""
    match run.about().get("alignment"):
        case {"from": str(name), "model": str(note)} if note == run.note():
            return next((aligner for aligner in list_aligners(model) if str(aligner) == name), None)
    return None
