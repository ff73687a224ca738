"""Where a run's model aligns words: found once on its validation pairs, and kept in its folder."""

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
_LONGEST = 40  # pieces a side


def find_aligner(run: RunFolder, translator: Translator, report: Reporter) -> Aligner:
    """The aligner that the folder remembers, or that its validation pairs show, or else the usual one."""
    model = translator.model
    if not translator.task.aligns_words:
        raise ConfigError(
            f"--alignments links words, but {run.path} is a model for {translator.task.name}, whose outputs come from "
            "no single words; leave it out"
        )
    if not can_align(translator):
        raise ConfigError(
            f"--alignments needs attention to the source, and the model of {run.path} has none; translate without it"
        )
    if kept := _kept(run, model):
        return kept
    pairs = read_valid_pairs(run) if (run.data / "valid.json").exists() else ()
    choice = _choose(translator, pairs)
    if not choice:
        report.say(f"no validation pairs to choose by: alignments are read from {DEFAULT_ALIGNER}, over all heads")
        return DEFAULT_ALIGNER
    report.say(f"alignments are read from {choice.aligner}, as the validation pairs show")
    try:
        _keep(run, choice)
    except HeedfulError as error:  # a model may lie where one can only read
        report.say(f"this is not kept in the run folder: {error}")
    return choice.aligner


def save_best_aligner(run: RunFolder, translator: Translator, pairs: Iterable[Pair]) -> None:
    """Find the best aligner and note it in the folder; a model without attention to the source has none."""
    if can_align(translator) and (choice := _choose(translator, pairs)):
        _keep(run, choice)


def can_align(translator: Translator) -> bool:
    """Whether outputs come from single words of the source, and the model attends to it."""
    return bool(translator.model.attentions.get("cross")) and translator.task.aligns_words


def _choose(translator: Translator, pairs: Iterable[Pair]) -> AlignerChoice | None:
    seen = (translator.task.symbols(pair) for pair in pairs)
    sample = list(islice(_short(translator.tokenizers, seen), _PAIRS))
    return choose_aligner(translator.model, sample) if sample else None


def _short(tokenizers: Tokenizers, pairs: Iterable[Pair]) -> Iterator[WordPair]:
    source, target = tokenizers.source, tokenizers.target
    for pair in pairs:
        if pair.source.strip() and pair.target.strip():
            found = make_word_pair(source, target, pair.source, target.encode(pair.target))
            if max(len(found.source), len(found.target)) <= _LONGEST:
                yield found


def _keep(run: RunFolder, choice: AlignerChoice) -> None:
    """With a note of the weights that it is true of: they may be trained on."""
    facts = {"from": str(choice.aligner), "agreement": choice.agreement, "words": choice.words, "model": run.note()}
    run.write_about({"alignment": facts})


def _kept(run: RunFolder, model: AnySeq2Seq) -> Aligner | None:
    """What the folder remembers, if it is of these weights."""
    match run.about().get("alignment"):
        case {"from": str(name), "model": str(note)} if note == run.note():
            return next((aligner for aligner in list_aligners(model) if str(aligner) == name), None)
    return None
