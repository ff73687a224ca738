"""How near translations come to their references: BLEU, chrF and TER by sacreBLEU, and BLEU as the paper counts it."""

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from importlib.metadata import version
from typing import TYPE_CHECKING

from heedful.config.experiment import BleuTokens
from heedful.errors import ConfigError, DataError
from heedful.metrics.score import Score

if TYPE_CHECKING:  # to import these takes a quarter of a second, and who translates scores nothing
    from sacrebleu.metrics.base import Metric
    from sacrebleu.metrics.bleu import BLEU

# sacreBLEU forms all resamples at once, 72 bytes a sentence for chrF; beyond this, there are fewer resamples, and the
# signature says how many.
_MAX_RESAMPLED_SENTENCES = 10_000_000
_UNSPACED_LANGUAGES = ("zh", "ja")
_COMPOUND = re.compile(r"(\S)-(\S)")
_QUOTES = str.maketrans({"„": '"', "‟": '"', "«": '"', "»": '"', "‘": "'", "‚": "'", "‛": "'", "‹": "'", "›": "'"})


def translation_scores(
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    tokenize: BleuTokens,
    language: str,
    resamples: int = 1000,
) -> list[Score]:
    """BLEU, chrF, TER and "BLEU (paper)", in this order. `references` holds one list for each set of references."""
    from sacrebleu.metrics.ter import TER

    from heedful.metrics.chrf import Chrf

    check_paired(hypotheses, references)
    unspaced = language in _UNSPACED_LANGUAGES  # without this, a line of Chinese is one single word for TER
    return [
        _measure("BLEU", bleu_metric(tokenize), hypotheses, references, resamples),
        _measure("chrF", Chrf(), hypotheses, references, resamples),
        _measure("TER", TER(normalized=unspaced, asian_support=unspaced), hypotheses, references, resamples),
        paper_bleu(hypotheses, references, language, resamples),
    ]


def bleu(hypotheses: Sequence[str], references: Sequence[Sequence[str]], tokenize: BleuTokens) -> float:
    """BLEU of the corpus alone, for a look while training."""
    check_paired(hypotheses, references)
    return float(bleu_metric(tokenize).corpus_score(hypotheses, references).score)


def words_of(lines: Iterable[str], tokenize: BleuTokens) -> Iterator[list[str]]:
    """The words of each line as BLEU sees them."""
    split = bleu_metric(tokenize).tokenizer
    return (split(line.rstrip()).split() for line in lines)


def paper_bleu(
    hypotheses: Sequence[str], references: Sequence[Sequence[str]], language: str, resamples: int = 1000
) -> Score:
    """BLEU of tables 2 and 3: normal quotes, Moses tokens, compounds split at hyphens, case kept, multi-bleu.

    It lies 0.7 to 1.5 above sacreBLEU's own on the same output, so compare it with published numbers of its kind only.
    """
    check_paired(hypotheses, references)
    split_references = [paper_tokens(lines, language) for lines in references]
    score = _measure(
        "BLEU (paper)", bleu_metric("none"), paper_tokens(hypotheses, language), split_references, resamples
    )
    tokens = f"tok:moses-{language or 'en'}-compound-split"
    signature = score.signature.replace("tok:none", tokens) + f"|quotes:ascii|sacremoses:{version('sacremoses')}"
    return Score(score.metric, score.value, score.low, score.high, signature)


def paper_tokens(lines: Iterable[str], language: str) -> list[str]:
    """Lines as the paper's BLEU sees them, tokens between spaces."""
    from sacremoses import MosesPunctNormalizer, MosesTokenizer

    normaliser, tokenizer = MosesPunctNormalizer(), MosesTokenizer(language or "en")
    plain = (normaliser.replace_unicode_punct(line).translate(_QUOTES) for line in lines)
    return [split_compounds(tokenizer.tokenize(line, return_str=True)) for line in plain]


def split_compounds(line: str) -> str:
    """Split "rich-text" to "rich ##AT##-##AT## text".

    As in the script of tensor2tensor, one letter between two hyphens serves only the first: "a-b-c" keeps "b-c".
    """
    return _COMPOUND.sub(r"\1 ##AT##-##AT## \2", line)


def bleu_metric(tokenize: BleuTokens) -> "BLEU":
    """sacreBLEU's, with these tokens."""
    from sacrebleu.metrics.bleu import BLEU

    try:
        return BLEU(tokenize=tokenize, force=True)
    except (ImportError, RuntimeError, OSError) as error:
        reason = str(error).strip().splitlines()[0]
        raise ConfigError(
            f"evaluate.tokenize = '{tokenize}' needs what is not installed ({reason}); take '13a', 'intl' or 'char'"
        ) from error


def _measure(
    name: str, metric: "Metric", hypotheses: Sequence[str], references: Sequence[Sequence[str]], resamples: int
) -> Score:
    count = affordable(resamples, len(hypotheses))
    result = metric.corpus_score(hypotheses, references, n_bootstrap=count)
    value = float(result.score)
    mean, margin = (float(result._mean), float(result._ci)) if count > 1 else (value, 0.0)
    return score_around(name, value, mean, margin, str(metric.get_signature()))


def affordable(resamples: int, sentences: int) -> int:
    """As many resamples as there is memory for."""
    return min(resamples, max(2, _MAX_RESAMPLED_SENTENCES // sentences))


def score_around(name: str, value: float, mean: float, margin: float, signature: str) -> Score:
    """A score with the interval of its resamples.

    They are summed in single precision: without care a perfect score could fall out of its interval by a millionth.
    """
    ceiling = math.inf if name == "TER" else max(100.0, value)
    low, high = max(0.0, min(mean - margin, value)), min(ceiling, max(mean + margin, value))
    return Score(name, value, low, high, signature)


def check_paired(hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> None:
    """Refuse what has no references, or not one for each line."""
    if not references:
        raise DataError("there are no references to compare with; give at least one file of them")
    if not hypotheses:
        raise DataError("there are no translations to score; the test set is empty")
    for number, lines in enumerate(references, 1):
        if len(lines) != len(hypotheses):
            raise DataError(
                f"there are {len(hypotheses)} translations but {len(lines)} lines in reference {number}; "
                "they must pair up line by line"
            )
