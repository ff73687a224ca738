"""How near translations come to their references: BLEU, chrF and TER by sacreBLEU, and BLEU as the paper counts it."""

import math
import re
from collections.abc import Iterable, Sequence
from importlib.metadata import version

from sacrebleu.metrics.base import Metric
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF, CHRFScore
from sacrebleu.metrics.ter import TER
from sacremoses import MosesPunctNormalizer, MosesTokenizer

from heedful.config.experiment import BleuTokens
from heedful.errors import ConfigError, DataError
from heedful.metrics.score import Score

# sacreBLEU forms all resamples at once, 72 bytes a sentence for chrF; beyond this, there are fewer resamples, and the
# signature says how many.
_MAX_RESAMPLED_SENTENCES = 10_000_000
_UNSPACED_LANGUAGES = ("zh", "ja")
_COMPOUND = re.compile(r"(\S)-(\S)")
_QUOTES = str.maketrans({"„": '"', "‟": '"', "«": '"', "»": '"', "‘": "'", "‚": "'", "‛": "'", "‹": "'", "›": "'"})


class _Chrf(CHRF):
    """sacreBLEU's, whose zeros are Python's and whose other values NumPy's: its bootstrap cannot take their mean."""

    def _compute_score_from_stats(self, stats: list[int]) -> CHRFScore:
        score = super()._compute_score_from_stats(stats)
        score.score = float(score.score)
        return score


def translation_scores(
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    tokenize: BleuTokens,
    language: str,
    resamples: int = 1000,
) -> list[Score]:
    """BLEU, chrF, TER and "BLEU (paper)", in this order. `references` holds one list for each set of references."""
    _check(hypotheses, references)
    unspaced = language in _UNSPACED_LANGUAGES  # without this, a line of Chinese is one single word for TER
    return [
        _measure("BLEU", _bleu_metric(tokenize), hypotheses, references, resamples),
        _measure("chrF", _Chrf(), hypotheses, references, resamples),
        _measure("TER", TER(normalized=unspaced, asian_support=unspaced), hypotheses, references, resamples),
        paper_bleu(hypotheses, references, language, resamples),
    ]


def bleu(hypotheses: Sequence[str], references: Sequence[Sequence[str]], tokenize: BleuTokens) -> float:
    """BLEU of the corpus alone, for a look while training."""
    _check(hypotheses, references)
    return float(_bleu_metric(tokenize).corpus_score(hypotheses, references).score)


def paper_bleu(
    hypotheses: Sequence[str], references: Sequence[Sequence[str]], language: str, resamples: int = 1000
) -> Score:
    """BLEU of tables 2 and 3: normal quotes, Moses tokens, compounds split at hyphens, case kept, multi-bleu.

    It lies 0.7 to 1.5 above sacreBLEU's own on the same output, so compare it with published numbers of its kind only.
    """
    _check(hypotheses, references)
    split_references = [paper_tokens(lines, language) for lines in references]
    score = _measure(
        "BLEU (paper)", _bleu_metric("none"), paper_tokens(hypotheses, language), split_references, resamples
    )
    tokens = f"tok:moses-{language or 'en'}-compound-split"
    signature = score.signature.replace("tok:none", tokens) + f"|quotes:ascii|sacremoses:{version('sacremoses')}"
    return Score(score.metric, score.value, score.low, score.high, signature)


def paper_tokens(lines: Iterable[str], language: str) -> list[str]:
    """Lines as the paper's BLEU sees them, tokens between spaces."""
    normaliser, tokenizer = MosesPunctNormalizer(), MosesTokenizer(language or "en")
    plain = (normaliser.replace_unicode_punct(line).translate(_QUOTES) for line in lines)
    return [split_compounds(tokenizer.tokenize(line, return_str=True)) for line in plain]


def split_compounds(line: str) -> str:
    """Split "rich-text" to "rich ##AT##-##AT## text".

    As in the script of tensor2tensor, one letter between two hyphens serves only the first: "a-b-c" keeps "b-c".
    """
    return _COMPOUND.sub(r"\1 ##AT##-##AT## \2", line)


def _bleu_metric(tokenize: BleuTokens) -> BLEU:
    try:
        return BLEU(tokenize=tokenize, force=True)
    except (ImportError, RuntimeError, OSError) as error:
        reason = str(error).strip().splitlines()[0]
        raise ConfigError(
            f"evaluate.tokenize = '{tokenize}' needs what is not installed ({reason}); take '13a', 'intl' or 'char'"
        ) from error


def _measure(
    name: str, metric: Metric, hypotheses: Sequence[str], references: Sequence[Sequence[str]], resamples: int
) -> Score:
    affordable = min(resamples, max(2, _MAX_RESAMPLED_SENTENCES // len(hypotheses)))
    result = metric.corpus_score(hypotheses, references, n_bootstrap=affordable)
    value = float(result.score)
    mean, margin = (float(result._mean), float(result._ci)) if affordable > 1 else (value, 0.0)
    ceiling = math.inf if name == "TER" else max(100.0, value)
    return Score(
        metric=name,
        value=value,
        # The resamples are summed in single precision: a perfect score could fall out of its interval by a millionth.
        low=max(0.0, min(mean - margin, value)),
        high=min(ceiling, max(mean + margin, value)),
        signature=str(metric.get_signature()),
    )


def _check(hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> None:
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
