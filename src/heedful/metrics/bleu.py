"""Score translations against references: BLEU, chrF and TER by sacreBLEU, and BLEU as the paper computes it."""

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from importlib.metadata import version
from typing import TYPE_CHECKING

from heedful.config.experiment import BleuTokens
from heedful.errors import ConfigError, DataError, counted
from heedful.metrics import Score

if TYPE_CHECKING:  # importing these takes a quarter of a second, which translating does not need
    from sacrebleu.metrics.base import Metric
    from sacrebleu.metrics.bleu import BLEU

# sacreBLEU draws all resamples at once and needs 72 bytes per sentence for chrF. Above this limit there are fewer
# resamples, and the signature says how many.
_MAX_RESAMPLED_SENTENCES = 10_000_000
_UNSPACED_LANGUAGES = ("zh", "ja")
_COMPOUND = re.compile(r"(\S)-(\S)")
_QUOTES = str.maketrans({"„": '"', "‟": '"', "«": '"', "»": '"', "‘": "'", "‚": "'", "‛": "'", "‹": "'", "›": "'"})


def score_translations(
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    tokenize: BleuTokens,
    language: str,
    resamples: int = 1000,
) -> list[Score]:
    """BLEU, chrF, TER and "BLEU (paper)", in this order. `references` holds one list for each set of references."""
    from sacrebleu.metrics.ter import TER

    from heedful.metrics.chrf import Chrf

    check_line_counts(hypotheses, references)
    unspaced = language in _UNSPACED_LANGUAGES  # otherwise TER counts a line of Chinese as one word
    return [
        _measure("BLEU", make_bleu(tokenize), hypotheses, references, resamples),
        _measure("chrF", Chrf(), hypotheses, references, resamples),
        _measure("TER", TER(normalized=unspaced, asian_support=unspaced), hypotheses, references, resamples),
        paper_bleu(hypotheses, references, language, resamples),
    ]


def score_bleu(hypotheses: Sequence[str], references: Sequence[Sequence[str]], tokenize: BleuTokens) -> Score:
    """BLEU of a corpus without an interval, fast enough for validation."""
    check_line_counts(hypotheses, references)
    return _measure("BLEU", make_bleu(tokenize), hypotheses, references, resamples=1)


def bleu(hypotheses: Sequence[str], references: Sequence[Sequence[str]], tokenize: BleuTokens) -> float:
    """The value of `score_bleu`."""
    return score_bleu(hypotheses, references, tokenize).value


def split_words(lines: Iterable[str], tokenize: BleuTokens) -> Iterator[list[str]]:
    """The words of each line, as BLEU splits them."""
    split = make_bleu(tokenize).tokenizer
    return (split(line.rstrip()).split() for line in lines)


def paper_bleu(
    hypotheses: Sequence[str], references: Sequence[Sequence[str]], language: str, resamples: int = 1000
) -> Score:
    """BLEU as in Tables 2 and 3: ASCII quotes, Moses tokens, compounds split at hyphens, case-sensitive.

    It is 0.7 to 1.5 higher than sacreBLEU's BLEU of the same output, so do not compare the two.
    """
    check_line_counts(hypotheses, references)
    split_references = [split_like_paper(lines, language) for lines in references]
    score = _measure(
        "BLEU (paper)", make_bleu("none"), split_like_paper(hypotheses, language), split_references, resamples
    )
    tokens = f"tok:moses-{language or 'en'}-compound-split"
    signature = score.signature.replace("tok:none", tokens) + f"|quotes:ascii|sacremoses:{version('sacremoses')}"
    return replace(score, signature=signature)


def split_like_paper(lines: Iterable[str], language: str) -> list[str]:
    """The tokens of each line, as the paper's BLEU splits them, with spaces between them."""
    from sacremoses import MosesPunctNormalizer, MosesTokenizer

    normaliser, tokenizer = MosesPunctNormalizer(), MosesTokenizer(language or "en")
    plain = (normaliser.replace_unicode_punct(line).translate(_QUOTES) for line in lines)
    return [split_compounds(tokenizer.tokenize(line, return_str=True)) for line in plain]


def split_compounds(line: str) -> str:
    """Split "rich-text" into "rich ##AT##-##AT## text".

    As in tensor2tensor's script, a single letter between two hyphens is split off only once: "a-b-c" keeps "b-c".
    """
    return _COMPOUND.sub(r"\1 ##AT##-##AT## \2", line)


def make_bleu(tokenize: BleuTokens) -> "BLEU":
    """Make sacreBLEU's BLEU with this tokenizer."""
    from sacrebleu.metrics.bleu import BLEU

    try:
        return BLEU(tokenize=tokenize, force=True)
    except (ImportError, RuntimeError, OSError) as error:
        reason = str(error).strip().splitlines()[0]
        raise ConfigError(
            f"evaluate.tokenize = '{tokenize}' needs a package that is not installed ({reason}); "
            "use '13a', 'intl' or 'char'"
        ) from error


def _measure(
    name: str, metric: "Metric", hypotheses: Sequence[str], references: Sequence[Sequence[str]], resamples: int
) -> Score:
    count = limit_resamples(resamples, len(hypotheses))
    result = metric.corpus_score(hypotheses, references, n_bootstrap=count)
    value = float(result.score)
    mean, margin = (float(result._mean), float(result._ci)) if count > 1 else (value, 0.0)
    score = make_score(name, value, mean, margin, str(metric.get_signature()))
    return replace(score, brevity_penalty=getattr(result, "bp", None))


def limit_resamples(resamples: int, sentences: int) -> int:
    """At most as many resamples as fit into memory."""
    return min(resamples, max(2, _MAX_RESAMPLED_SENTENCES // sentences))


def make_score(name: str, value: float, mean: float, margin: float, signature: str) -> Score:
    """A score with the interval `mean` ± `margin` of its resamples.

    sacreBLEU computes a perfect BLEU as the exponential of a mean of logarithms, which rounds to 100.00000000000004; it
    is 100 here. Resamples are summed in single precision, so a perfect score could be a millionth outside its interval.
    The interval is widened to contain it.
    """
    ceiling = math.inf if name == "TER" else 100.0
    value = min(value, ceiling)
    low, high = max(0.0, min(mean - margin, value)), min(ceiling, max(mean + margin, value))
    return Score(name, value, low, high, signature)


def check_line_counts(hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> None:
    """Refuse empty texts and texts with different numbers of lines."""
    if not references:
        raise DataError("there are no references to compare with; give at least one file")
    if not hypotheses:
        raise DataError("there are no translations to score; the test set is empty")
    for number, lines in enumerate(references, 1):
        if len(lines) != len(hypotheses):
            raise DataError(
                f"{counted(len(hypotheses), 'translation')} but {counted(len(lines), 'line')} in reference {number}; "
                "they must pair up line by line"
            )
