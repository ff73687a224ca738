"""Figures 3 to 5: where the heads of a trained model look."""

from collections.abc import Iterator
from statistics import fmean
from typing import Any

from heedful.attention.forced_decoding import forced
from heedful.attention.head_names import Head, all_heads
from heedful.data.pairs import Pair
from heedful.device import use_threads
from heedful.errors import ConfigError
from heedful.inspection.attention_view import Lens
from heedful.inspection.drawing import draw_attention
from heedful.inspection.paper_figures import Found, find_figures
from heedful.storage.run_folder import RunFolder
from heedful.studies.charts import can_draw
from heedful.studies.experiments import Row, base
from heedful.studies.outcome import Table
from heedful.studies.plan import Plan
from heedful.studies.row_training import train_row
from heedful.studies.synthetic import comes_from, pairs, write_corpus
from heedful.translation.result import Look
from heedful.translation.translator import Translator

_SIZES, _CLAUSES = (8000, 100, 100), (1,)  # short sentences, which a tiny model learns in seconds
_TEST_SEED = 2  # of the test set of `write_corpus`
_STRONGEST = 3  # heads that are told of each link of the paper

Shown = tuple[Table, dict[str, bytes]]


def heads(plan: Plan) -> Shown:
    """Of the recipe's model on the paper's sentences; for smoke, of a tiny one on the small language."""
    if plan.scale == "smoke":
        return small_language(plan)
    experiment = base("figures", plan, {}, "recipes/multi30k-en-de.toml")
    if (language := experiment.data.source_language) not in ("", "en"):
        raise ConfigError(
            f"the sentences of figures 3 to 5 are English, but the recipe translates from '{language}'; "
            "swap its sources and targets"
        )
    return paper_sentences(_lens(train_row(Row("heads", experiment), plan)))


def paper_sentences(lens: Lens) -> Shown:
    """The sentences of the paper, and the heads that make the links which it shows."""
    found = list(find_figures(lens))
    table = Table(
        "Heads of figures 3 to 5",
        ("figure", "from", "to", "head", "share %", "by chance %"),
        tuple(row for one in found for row in _links(one)),
        (f"Pages to look into them: heedful heads {lens.run} --paper FOLDER",),
    )
    return table, {f"{one.figure.name}.svg": _drawn(one.look) for one in found} if can_draw() else {}


def _links(found: Found) -> Iterator[tuple[str, str, str, str, float, float]]:
    link = found.figure.name, found.figure.query, " ".join(found.figure.keys)
    for one in found.links[:_STRONGEST]:
        yield *link, str(one.head), 100 * one.share, 100 * found.chance


def small_language(plan: Plan) -> Shown:
    """All heads on one sentence, and how much each cross head looks at the word that the next one comes from."""
    write_corpus(plan.folder / "data", _SIZES, _CLAUSES)
    experiment = base("figures", plan, _small_recipe(plan), "")
    lens = _lens(train_row(Row("heads", experiment), plan))
    held_out = pairs(_SIZES[2], _TEST_SEED, _CLAUSES)
    right = [
        made.text == pair.target
        for made, pair in zip(lens.translator.translate([pair.source for pair in held_out]), held_out, strict=True)
    ]
    shares, chance = right_words(lens.translator, held_out)
    table = Table(
        "Cross heads of a tiny Transformer",
        ("head", "on the right word %", "by chance %"),
        tuple((str(head), 100 * share, 100 * chance) for head, share in shares.items()),
        (
            f"How much of a head is on the source word that is translated next, over {len(held_out)} sentences of the "
            f"small language that were not trained on; of them, {sum(right)} are translated without a fault.",
            "Figures 3 to 5 are of English sentences. For them train a model from English and type: "
            "heedful heads RUN --paper FOLDER",
        ),
    )
    longest = max(held_out, key=lambda pair: len(pair.source.split()))
    return table, {"heads.svg": _drawn(lens.look(longest.source))} if can_draw() else {}


def right_words(translator: Translator, held_out: list[Pair]) -> tuple[dict[Head, float], float]:
    """The mean weight of each cross head on the words that the target's words come from, and that of an even head."""
    source, target = (
        [tokenizer.encode(text) for text in texts]
        for tokenizer, texts in (
            (translator.tokenizers.source, [pair.source for pair in held_out]),
            (translator.tokenizers.target, [pair.target for pair in held_out]),
        )
    )
    heads = [head for head in all_heads(translator.model) if head.kind == "cross"]
    weights: dict[Head, list[float]] = {head: [] for head in heads}
    even: list[float] = []
    for pair, inside, ids in zip(held_out, forced(translator.model, source, target), source, strict=True):
        english = pair.source.split()
        for row, word in enumerate(pair.target.split()):
            keys = [place for place, one in enumerate(english) if comes_from(word, one)]
            if not keys:
                continue
            even.append(len(keys) / len(ids))
            for head in heads:
                weights[head].append(float(inside.attention[head][row, keys].sum()))
    return {head: fmean(values) for head, values in weights.items()}, fmean(even)


def _small_recipe(plan: Plan) -> dict[str, Any]:
    return {
        "model": {
            "preset": "modern",
            "d_model": 64,
            "d_ff": 128,
            "encoder_layers": 2,
            "decoder_layers": 2,
            "dropout": 0.0,
        },
        "text": {"kind": "words", "vocabulary_size": 600},
        "data": {
            "folder": str(plan.folder / "data"),
            "source": ["train.en"],
            "target": ["train.xx"],
            "valid_source": ["valid.en"],
            "valid_target": ["valid.xx"],
        },
        "train": {
            "max_steps": 300,
            "threads": 1,
            "batch_tokens": 1000,
            "warmup_steps": 50,
            "validate_every": 300,
            "save_every": 300,
            "validate_bleu": False,
            "ema_decay": 0.0,
        },
    }


def _lens(run: RunFolder) -> Lens:
    use_threads(run.experiment().train.threads)
    translator = Translator.load(run.path)
    return Lens(run.path, translator, translator.search)


def _drawn(look: Look) -> bytes:
    translation = look.translation
    return draw_attention(look.inside[0].attention, translation.source_pieces, translation.pieces, "svg")
