"""Which parts are taken out or changed, one row each; what the recipe is without already has none."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from heedful.config import Experiment, make_experiment, merge
from heedful.models.transformer import Transformer
from heedful.studies import ablation_changes as changes
from heedful.studies import ablation_verdicts as verdicts
from heedful.studies.ablation_verdicts import Verdict

Settings = Callable[[Experiment], Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Part:
    """One thing that differs from the whole model: an option of the recipe, or a change of what was built."""

    name: str
    changed: str
    settings: Settings = lambda _: {}
    change: Callable[[Transformer], None] = changes.nothing
    kind: type[Transformer] = Transformer
    verdict: Verdict = verdicts.compared

    def experiment(self, base: Experiment) -> Experiment:
        """All options of this row."""
        return make_experiment(merge(asdict(base), self.settings(base)))

    def differs(self, base: Experiment) -> bool:
        """Whether there is anything to see: a recipe without dropout cannot lose it."""
        built = self.change is not changes.nothing or self.kind is not Transformer
        return built or self.experiment(base) != base


def _model(**values: object) -> Settings:
    return lambda _: {"model": values}


def _no_warmup(base: Experiment) -> Mapping[str, Any]:
    """The rate is what it was after the warm-up, and before it as high as the schedule has it."""
    config = base.train
    factor = max(1, config.warmup_steps) ** 0.5 if config.schedule == "inverse-sqrt" else 1.0
    return {"train": {"warmup_steps": 0, "learning_rate": factor * config.learning_rate}}


WHOLE = Part("whole", "nothing", verdict=verdicts.whole)

PARTS = (
    Part(
        "no-positions",
        "no positional encoding",
        change=changes.without_positions,
        verdict=verdicts.positions,
    ),
    Part("no-scale", "no 1/sqrt(d_k)", change=changes.without_scale),
    Part("keys-as-queries", "queries and keys by one projection", change=changes.with_keys_as_queries),
    Part("no-residuals", "no residual connections", change=changes.without_residuals),
    Part("no-norm", "no layer norm", change=changes.without_norm),
    Part("pre-norm", "the norm before each sub-layer", settings=_model(norm="pre")),
    Part("post-norm", "the norm after each sub-layer", settings=_model(norm="post")),
    Part("no-feed-forward", "no feed-forward network", change=changes.without_feed_forward),
    Part("one-head", "one head as wide as all", settings=_model(num_heads=1, d_k=0, d_v=0)),
    Part(
        "no-look-ahead-mask",
        "the decoder sees what comes",
        change=changes.without_look_ahead_mask,
        verdict=verdicts.look_ahead,
    ),
    Part(
        "no-padding-mask",
        "padding is looked at",
        kind=changes.PaddedTransformer,
        verdict=verdicts.padding,
    ),
    Part("no-warm-up", "the rate begins at its highest", settings=_no_warmup),
    Part(
        "no-dropout",
        "no dropout",
        settings=_model(dropout=0.0, attention_dropout=0.0, activation_dropout=0.0),
        verdict=verdicts.dropout,
    ),
    Part(
        "no-label-smoothing",
        "no label smoothing",
        settings=lambda _: {"train": {"label_smoothing": 0.0}},
        verdict=verdicts.smoothing,
    ),
    Part("untied", "source, target and output matrices of their own", settings=_model(sharing="none")),
)

# Trained on the shorter half of the pairs alone.
POSITIONS = (
    Part("short-sinusoidal", "sinusoidal", settings=_model(positions="sinusoidal")),
    Part("short-learned", "learned", settings=_model(positions="learned")),
    Part("short-none", "none", change=changes.without_positions),
)
