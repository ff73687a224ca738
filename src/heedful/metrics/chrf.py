"""chrF by sacreBLEU."""

from sacrebleu.metrics.chrf import CHRF, CHRFScore


class Chrf(CHRF):
    """sacreBLEU's, whose zeros are Python's and whose other values NumPy's: its bootstrap cannot take their mean."""

    def _compute_score_from_stats(self, stats: list[int]) -> CHRFScore:
        score = super()._compute_score_from_stats(stats)
        score.score = float(score.score)
        return score
