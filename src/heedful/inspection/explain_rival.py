"""Explain a translation by one of the Transformer's rivals, as far as it has the parts of figure 1."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from heedful.config import SearchConfig
from heedful.decoding.beam_tree import BeamTree
from heedful.errors import ConfigError
from heedful.inspection.counterfactuals import CounterfactualRunner, search_by, without_heads
from heedful.inspection.explain import (
    Explained,
    Reordered,
    check_length,
    check_search,
    find_neighbours,
    name_roles,
    reorder,
)
from heedful.models.convolutional import Convolutional
from heedful.models.recurrent import Recurrent
from heedful.nn.source_attention import AdditiveAttention
from heedful.translation.translator import Translator


@dataclass(frozen=True, kw_only=True)
class ExplainedRival(Explained):
    """Everything that the page tells about one sentence and its translation by a rival."""

    tree: BeamTree
    orders: Mapping[str, Reordered]
    attentions: int  # layers of the decoder that attend to the source
    score_vector: np.ndarray | None  # of additive attention


def explain_rival(
    run: Path,
    translator: Translator,
    text: str,
    search: SearchConfig,
    translation: str | None = None,
    done: Callable[[int, int], None] = lambda number, count: None,
) -> ExplainedRival:
    """Translate a sentence or take a given translation, record all steps, and run the experiments that fit."""
    check_search(search)
    check_length("sentence", len(translator.encode([text])[0]))
    model, tokenizers = translator.model, translator.tokenizers
    if not isinstance(model, Recurrent | Convolutional):
        raise ConfigError(f"{run} holds a {type(model).__name__}, whose steps are not known; choose another model")
    look = translator.look(text, search=search, translation=translation)
    steps = look.steps
    source, target = steps["source"].tolist(), steps["target"].tolist()
    check_length("translation", len(target))
    eos = tokenizers.target.eos_id
    runner = CounterfactualRunner(model, source, target, search_by(model, search, eos))
    baseline = runner.run()
    without = runner.run_all(without_heads(model), done)
    without["no-penalty"] = runner.run(write=search_by(model, replace(search, alpha=0.0), eos))
    orders = reorder(text, translator, steps)
    crosses = model.attentions.get("cross", ())
    additive = next((each for each in crosses if isinstance(each, AdditiveAttention)), None)
    return ExplainedRival(
        model_name=run.resolve().name,
        config=model.config,
        search=search,
        text=look.translation.source,
        given=look.translation.text,
        steps=steps,
        tree=look.tree,
        source=tokenizers.source,
        target=tokenizers.target,
        neighbours=find_neighbours(model.source_embedding.weight, list(dict.fromkeys(source[:-1])), tokenizers.source),
        baseline=baseline,
        requested=translation is not None,
        without=without,
        log_prob=float(steps["log_probs"][np.arange(len(target)), target].sum()),
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        orders={name: Reordered(words, runner.run(translator.encode([words])[0])) for name, words in orders.items()},
        attentions=len(crosses),
        score_vector=None if additive is None else additive.score.detach().float().cpu().numpy(),
        roles=name_roles(run),
    )
