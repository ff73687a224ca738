"""Write the course: eight chapters in the paper's order, in docs/course/, and all of them as a notebook.

    .venv/bin/python scripts/course.py

Every number comes from `heedful explain` on a built-in model. Run this again when that model has changed;
tests/scripts/test_course.py fails until you have.
"""

import json
import re
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from math import exp, sqrt
from pathlib import Path

import numpy as np

from heedful.inspection.explain import ExplainedSentence, explain_sentence
from heedful.inspection.markup import amount, byte_size, softmax
from heedful.storage.model_names import find_model
from heedful.translation.translator import Translator

MODEL, TEXT = "en-de", "The children did not see the old house."
FOLDER = Path(__file__).parents[1] / "docs" / "course"
NOTEBOOK = "course.ipynb"


@dataclass(frozen=True, slots=True)
class Chapter:
    """A page of the course: paragraphs of Markdown, and Python code between them."""

    file: str
    title: str
    sections: str  # of the paper
    step: str  # of the page that `heedful explain` writes
    text: str


def explain_example() -> ExplainedSentence:
    """The sentence of the course, explained by the built-in model."""
    translator = Translator.load(MODEL, "cpu")
    return explain_sentence(find_model(MODEL), translator, TEXT, translator.search)


def write_chapters(found: ExplainedSentence) -> list[Chapter]:
    """All chapters, with the numbers of this sentence."""
    return [make(found) for make in (_first, _attention, _heads, _sublayers, _input, _why, _training, _descendants)]


def render_files(chapters: list[Chapter]) -> dict[str, str]:
    """The files of the course by name."""
    files = {chapter.file: _render(number, chapters) for number, chapter in enumerate(chapters)}
    return files | {"README.md": _render_contents(chapters), NOTEBOOK: _render_notebook(chapters)}


def _render(number: int, chapters: list[Chapter]) -> str:
    chapter = chapters[number]
    links = [f"[{chapter.title}]({chapter.file})" for chapter in chapters]
    before = f"Before: {links[number - 1]}. " if number else ""
    after = f"Next: {links[number + 1]}." if number + 1 < len(chapters) else "Back to [the contents](README.md)."
    return f"""<!-- Written by scripts/course.py; change it there. -->

# {number + 1}. {chapter.title}

*The paper: {chapter.sections}. On the page of `heedful explain`: step `{chapter.step}`.*

{_wrap(chapter.text.strip())}

---

{before}{after}
"""


def _render_contents(chapters: list[Chapter]) -> str:
    rows = "\n".join(
        f"{number}. [{chapter.title}]({chapter.file}) (the paper: {chapter.sections})"
        for number, chapter in enumerate(chapters, 1)
    )
    return f"""<!-- Written by scripts/course.py; change it there. -->

# The course: the paper in eight short chapters

Each chapter takes one step through "Attention Is All You Need" with the numbers of one sentence,
"{TEXT}", in the built-in model `{MODEL}`. Each ends with an exercise: predict, then run. Have the
page of that sentence open beside it:

```console
$ heedful explain {MODEL} "{TEXT}" --open
```

{rows}

All chapters are also [a notebook]({NOTEBOOK}), which Jupyter opens. You need the extra `train` (PyTorch). A script
writes the chapters from the model itself, and a test compares them, so the numbers are those that you will see.
"""


def _render_notebook(chapters: list[Chapter]) -> str:
    cells: list[dict[str, object]] = []
    for number, chapter in enumerate(chapters, 1):
        text = f"# {number}. {chapter.title}\n\n*The paper: {chapter.sections}.*\n\n{chapter.text.strip()}"
        for place, part in enumerate(re.split(r"^```python\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)):
            if part.strip():
                cells.append(_cell(len(cells), "code" if place % 2 else "markdown", part.strip()))
    notebook: dict[str, object] = {
        "cells": cells,
        "metadata": {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    return json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"


def _cell(number: int, kind: str, text: str) -> dict[str, object]:
    cell: dict[str, object] = {"cell_type": kind, "id": f"cell-{number}", "metadata": {}}
    if kind == "code":
        cell |= {"execution_count": None, "outputs": []}
    return cell | {"source": text.splitlines(keepends=True)}


def _wrap(text: str) -> str:
    """The text with prose in lines of at most 120 characters; numbers change how long a line is."""
    filler = textwrap.TextWrapper(120, break_long_words=False, break_on_hyphens=False)
    blocks = []
    for part in re.split(r"(^```.*?^```$)", text, flags=re.MULTILINE | re.DOTALL):
        if part.startswith("```"):
            blocks.append(part)
            continue
        for block in part.strip().split("\n\n"):
            is_prose = block and not re.match(r"[|>#<\-]", block)
            blocks.append(filler.fill(" ".join(block.split())) if is_prose else block)
    return "\n\n".join(block for block in blocks if block)


def _start(more: str = "") -> str:
    """The code that every chapter begins with; NumPy is imported if the rest of it needs that."""
    numpy = "import numpy as np\n\n" if "np." in more else ""
    return f"""```python
{numpy}from heedful import Translator

translator = Translator.load("{MODEL}")
look = translator.look("{TEXT}")
{more}```"""


def _table(titles: tuple[str, ...], rows: Iterator[tuple[object, ...]]) -> str:
    lines = [titles, tuple("---" for _ in titles), *rows]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)


def _quote(text: str) -> str:
    """What the model says, at the end of a sentence."""
    return f'"{text}"' if text.endswith((".", "!", "?", "…")) else f'"{text}".'


def _answer(text: str) -> str:
    return f'<details markdown="1"><summary>The answer</summary>\n\n{text}\n\n</details>'


def _command(step: str) -> str:
    return f"""See it: `heedful explain {MODEL} "{TEXT}" --open`, then go to step `{step}`."""


def _first(found: ExplainedSentence) -> Chapter:
    config, pieces = found.config, found.source_pieces
    rows = ((f"`{name}`", number) for name, number in zip(pieces, found.steps["source"].tolist(), strict=True))
    text = f"""
The paper's model reads a sentence in one language and writes it in another. This one reads

> {TEXT}

and writes

> {found.given}

Notice the last word: German puts the verb at the end. A model that goes from left to right, word by word, would have to
remember it. This one can look back at any word at any time. That is what the paper is about.

A model cannot read letters. A tokenizer cuts the sentence into **pieces** and looks up the number of each:

{_table(("piece", "id"), rows)}

`▁` stands for a space, and `</s>` ends the sentence. Frequent words are one piece; rare words are several.

Everything after this is arithmetic on {len(pieces)} lists of {config.d_model} numbers. Figure 1 of the paper shows the
way: an **encoder** of {config.encoder_layers} layers reads the sentence, and a **decoder** of {config.decoder_layers}
layers writes the translation, one piece after another, looking at what the encoder made. The paper's own model
has 6 and
6 layers and 65 million weights; this one has {amount(found.parameters)}.

## Predict, then run

How many pieces will the word "unbelievable" have? And a word that does not exist, such as "blorptastic"?

{
        _start(
            "print(look.translation.source_pieces)"
            + chr(10)
            + 'for word in ("unbelievable", "blorptastic"):'
            + chr(10)
            + "    print(translator.look(word).translation.source_pieces)"
            + chr(10)
        )
    }

{
        _answer(
            "Words that the training text had often are one piece. Others are put together from pieces, in the "
            "last resort from single characters, so no word is unknown."
        )
    }

{_command("pieces")}
"""
    return Chapter("1-figure-1.md", "Figure 1, and text as numbers", "sections 1 to 3", "pieces", text)


def _attention(found: ExplainedSentence) -> Chapter:
    name = found.ranked_heads("encoder.1.attention.head.")[0]
    sublayer, _, head = name.rpartition(".head.")
    at = int(head) - 1
    steps = found.steps
    weights, scores = steps[f"{sublayer}.weights"][at], steps[f"{sublayer}.scores"][at]
    between_words = weights[:-2, :-2] - np.eye(len(weights) - 2)
    row, column = divmod(int(between_words.argmax()), len(between_words))  # two different words
    d_k = steps[f"{sublayer}.query"].shape[-1]
    bias = steps[f"{sublayer}.bias"][at] if f"{sublayer}.bias" in steps else np.zeros_like(scores)
    undivided = softmax(scores + bias)
    here, there = found.source_pieces[row], found.source_pieces[column]
    shown = ((f"`{piece}`", f"{weight:.3f}") for piece, weight in zip(found.source_pieces, weights[row], strict=True))
    text = f"""
Attention answers one question for each piece: which other pieces should I look at, and how much? Each piece has three
short vectors of {d_k} numbers. Its **query** says what it looks for, its **key** says by what it is found, and its
**value** is what it passes on.

Take head {head} of the encoder's first layer, and the piece `{here}`. Its score for `{there}` is the dot product of
the query of the one and the key of the other, {d_k} products added up: **{scores[row, column]:.2f}**.

The score is divided by √{d_k} = {sqrt(d_k):.2f}, which gives {
        scores[row, column] / sqrt(d_k):.2f}. (This model then adds
a number that it learned for the distance, {bias[row, column]:.2f}. The paper's model does not; chapter 5 says what it
does instead.) A softmax turns the scores of all pieces into shares that add up to 1:

{_table(("piece", f"share of `{here}`'s attention"), shown)}

The result for `{here}` is the mean of all values, weighted by these shares. In one line, equation 1 of the paper:

> Attention(Q, K, V) = softmax(Q Kᵀ / √d_k) V

Why divide? A sum of {d_k} products is large, and the softmax of large numbers picks one piece and ignores the rest. Its
gradient is then almost zero, so the model could not learn to look elsewhere. Without the
division, the model says {_quote(found.text_without("scale-of-scores"))}

## Predict, then run

Compute the share of `{there}` yourself, from the queries and keys. Then leave out the line that divides. Does the
share rise or fall?

{
        _start(f'''
name, head, row = "{sublayer}", {at}, {row}
query, key = look.steps[f"{{name}}.query"][head], look.steps[f"{{name}}.key"][head]
scores = query[row] @ key.T  # a dot product with every key
scores = scores / np.sqrt(len(query[row]))
if f"{{name}}.bias" in look.steps:  # only models with relative positions
    scores = scores + look.steps[f"{{name}}.bias"][head][row]
shares = np.exp(scores) / np.exp(scores).sum()
print(shares.round(3))
print(np.allclose(shares, look.steps[f"{{name}}.weights"][head][row], atol=1e-4))
''')
    }

{
        _answer(
            f"The share of `{there}` is {weights[row, column]:.3f}, and the last line prints True. Without the "
            f"division it is {undivided[row, column]:.3f}, the largest shares of all rows have a mean of "
            f"{undivided.max(1).mean():.2f} instead of {weights.max(1).mean():.2f}, and the last line prints False."
        )
    }

{_command(f"{name}.softmax")}
"""
    return Chapter("2-attention.md", "Attention", "section 3.2.1, equation 1", f"{name}.softmax", text)


def _heads(found: ExplainedSentence) -> Chapter:
    ranked = found.ranked_heads()
    rows = (
        (number, f"`{_switch_name(name)}`", f"{found.cost_without(name):.2f}", found.text_without(name))
        for number, name in enumerate(ranked[:5], 1)
    )
    best = _switch_name(ranked[0])
    lost = found.log_prob - sum(found.unmasked)
    per_layer = found.config.num_heads
    text = f"""
One attention can look for one kind of thing at a time. So each layer has several, the **heads**, here {per_layer}, each
with its own queries, keys and values. Their results stand side by side and go through one matrix.

The model uses attention in three ways:

- in the **encoder**, each piece of the source looks at all pieces of the source;
- in the **decoder**, each piece of the translation looks at the pieces written before it;
- **between them**, each piece of the translation looks at the source. Queries come from the decoder, keys and values
  from the encoder. Here the two languages meet.

While the model is trained, it reads the whole translation at once, so a **mask** must hide what comes later: those
scores become minus infinity, and their shares 0. Take the mask away from this model, and it sees the future
that it never
saw in training: it finds its own translation e^{lost:.0f} times less likely.

Which heads matter? Switch each of the {len(ranked)} heads off and see how much log-probability the translation loses:

{_table(("rank", "without", "log P lost", "the model then says"), rows)}

A large weight does not mean that a head matters. Look at both: where it looks, and what happens without it.

## Predict, then run

What does the model say without `{best}`, the head that matters most here? And without two heads?

{
        _start(f'''
print(look.translation.text)
for off in (["{best}"], ["{best}", "{_switch_name(ranked[1])}"]):
    with translator.switch_off_heads(off):
        print(off, translator.translate(["{TEXT}"])[0].text)
''')
    }

{
        _answer(
            f"Without the first: {_quote(found.text_without(ranked[0]))} Heads can stand in for each other, so what "
            "two heads are worth does not follow from the table: run it."
        )
    }

{_command("experiments.heads")}
"""
    return Chapter(
        "3-heads.md", "Many heads, three kinds of attention", "sections 3.2.2 and 3.2.3", "experiments.heads", text
    )


def _switch_name(name: str) -> str:
    stack, layer, part, _, head = name.split(".")
    return f"{'cross' if part == 'cross_attention' else stack}.{layer}.{head}"


def _sublayers(found: ExplainedSentence) -> Chapter:
    steps, config = found.steps, found.config
    active = steps["encoder.1.feed_forward.active"]
    awake = (active > 0).sum(1)
    x, result = steps["encoder.1.feed_forward.before"], steps["encoder.1.feed_forward.result"]
    kept = (x * result).sum(1) / (np.linalg.norm(x, axis=1) * np.linalg.norm(result, axis=1))
    place = "before each sub-layer" if config.norm == "pre" else "after the sum"
    text = f"""
After attention, in which the pieces talk to each other, each piece thinks alone: a small network of {config.d_ff} units
works on its vector. It is the same network with the same weights at every position, which is all that "position-wise"
means. For this sentence, {awake.min()} to {awake.max()} of the {
        config.d_ff
    } units of the first layer are awake for a piece; the
others are 0.

Each sub-layer, attention or network, only **adds** to what came in: the result is x + Sublayer(x). So x has a way past
every layer. After the first network, the cosine between what came in and what goes out is still {kept.mean():.2f}.

A **norm** brings the numbers of each vector to mean 0 and spread 1 and then gives them a learned gain and shift. The
paper normalises the sum, LayerNorm(x + Sublayer(x)); this model normalises {place}.

What is each part worth to this sentence?

{
        _table(
            ("without", "log P lost", "the model then says"),
            (
                (title, f"{found.cost_without(name):.1f}", found.text_without(name) or "(nothing)")
                for name, title in (
                    ("feed_forward", "all feed-forward networks"),
                    ("encoder.1", "layer 1 of the encoder"),
                    (f"encoder.{config.encoder_layers}", f"layer {config.encoder_layers} of the encoder"),
                    ("encoder.1.attention.residual", "x in the sum after the first attention"),
                )
            ),
        )
    }

It is often said that the derivative of x + F(x) is at least 1. It is 1 + F′(x), and F′(x) can be negative.
Here, a small
change of x leaves the first network between {found.gains.smallest:.2f} and {found.gains.largest:.1f} times as long,
depending on its direction.

## Predict, then run

Are the same units awake for every piece? How many units sleep through the whole sentence?

{
        _start('''
active = look.steps["encoder.1.feed_forward.active"] > 0
print(active.sum(axis=1))
print((~active.any(axis=0)).sum(), "of", active.shape[1])
''')
    }

{
        _answer(
            f"{int((~(active > 0).any(0)).sum())} of {active.shape[1]} units sleep through this sentence. Another "
            "sentence wakes "
            "others."
        )
    }

{_command("encoder.1.feed_forward")}
"""
    return Chapter(
        "4-feed-forward.md", "The feed-forward network, the sum and the norm", "sections 3.1 and 3.3",
        "encoder.1.feed_forward", text,
    )  # fmt: skip


def _input(found: ExplainedSentence) -> Chapter:
    swapped, backwards = found.orders.get("swapped"), found.orders["reversed"]
    rows = (
        (f"`{each.piece}`", ", ".join(f"`{name}` {cosine:.2f}" for name, cosine in each.nearest[:3]))
        for each in found.neighbours[:-2]
    )
    similar = found.similarity
    relative = (
        "This model does it differently: it adds nothing to the vectors, but each head learns a number for each "
        "distance "
        "between two pieces and adds it to the score."
        if found.config.positions == "relative"
        else "This model does the same."
    )
    change = (
        f'Swap two words, "{swapped.text}", and it says {_quote(found.spell(swapped.made))} ' if swapped else ""
    )  # fmt: skip
    text = f"""
Each id selects one row of a matrix, its **embedding**: {found.config.d_model} numbers, which are multiplied by
√{found.config.d_model} =
{sqrt(found.config.d_model):.1f}. Nobody chose these numbers. They began at random, and training moved them, so
that pieces
that can stand in the same places got similar vectors:

{_table(("piece", "nearest neighbours, and the cosine"), rows)}

The {similar.pairs} pairs of pieces that differ only in a capital letter have a mean cosine of
{similar.alike:.2f}; random pairs have
{similar.random:.2f}.

So far the order of the words is lost: attention treats a sentence as a bag of pieces. The paper adds to each
embedding a
vector that depends on the **position**: sines and cosines with wavelengths from 2π to 10000 · 2π. The dot
product of two
such vectors depends only on their distance, so a head can learn to look "one to the left". Adding costs no column: side
by side, x and p would meet in a sum as well, W₁x + W₂p, in the next matrix. {relative}

Without positions, the model says {_quote(found.text_without("positions"))} {change}And backwards,
"{backwards.text}" becomes {_quote(found.spell(backwards.made))}

## Predict, then run

Compute the paper's positions for {found.config.d_model} dimensions. Which distance has the larger dot product, 1 or 10?

```python
import numpy as np

d_model, positions = {found.config.d_model}, np.arange(30)[:, None]
angles = positions / 10000 ** (np.arange(0, d_model, 2) / d_model)
table = np.concatenate([np.sin(angles), np.cos(angles)], axis=1)  # the paper takes them in turns
print((table[5] @ table[6]).round(1), (table[5] @ table[15]).round(1), (table[12] @ table[13]).round(1))
```

{_answer(_positions_answer(found.config.d_model))}

{_command("encoder.positions")}
"""
    return Chapter(
        "5-embeddings-and-positions.md", "Embeddings and positions", "sections 3.4 and 3.5", "encoder.positions", text
    )


def _positions_answer(d_model: int) -> str:
    angles = np.arange(30)[:, None] / 10000 ** (np.arange(0, d_model, 2) / d_model)
    table = np.concatenate([np.sin(angles), np.cos(angles)], axis=1)
    near, far = table[5] @ table[6], table[5] @ table[15]
    return (
        f"{near:.1f} for a distance of 1, {far:.1f} for a distance of 10, and {near:.1f} again at another place: only "
        "the "
        "distance counts."
    )


def _why(found: ExplainedSentence) -> Chapter:
    costs = {part.name: part for part in found.costs}
    operations = sum(part.operations for part in found.costs)
    reached = ", ".join(str(int((row > 1e-6).sum())) for row in found.reach.restricted)
    longer = ((f"{each.pieces:,}", amount(each.operations), f"{100 * each.pair_share:.0f} %") for each in found.lengths)
    text = f"""
Recurrent networks read a sentence word by word; what they know of the first word has to survive {
        len(found.source_pieces) - 1
    } steps to reach
the end. In self-attention, every piece sees every other piece directly. The paper calls this the **path
length**, and it
is 1.

Is it? Replace the first piece of the sentence, `{found.source_pieces[0]}` by `{
        found.reach.other
    }`, and see which vectors
change. After the first layer, {int((found.reach.whole[0] > 1e-6).sum())} of {
        len(found.source_pieces)
    } have changed. Let each piece
see only its two neighbours, in the same model, and the news reaches {reached} pieces after layers 1 to {
        len(found.reach.restricted)
    }.

The price: each piece looks at each piece, so the work grows with the square of the length.

{_table(("pieces on each side", "operations", "of these, between pairs of pieces"), longer)}

For a sentence the square does not matter: most of the work is in the matrices. Of the {
        amount(operations)
    } operations for
this sentence, the encoder's feed-forward networks take {
        100 * costs["encoder.feed_forward"].operations / operations:.0f} %, and the output layer, which
compares the last vector with every piece of the vocabulary, takes {
        100 * costs["output"].operations / operations:.0f} %. The weights take
{byte_size(4 * found.parameters)} as 32-bit numbers.

All positions of a layer are computed at the same time, while a recurrent network has to wait for each word. That is the
paper's other argument: fewer steps that must follow each other.

## Predict, then run

If a sentence is twice as long, how many scores does one head compute?

{
        _start('''
double = translator.look("The children did not see the old house, and the old house did not see the children.")
for each in (look, double):
    print(each.steps["encoder.1.attention.scores"].shape)
''')
    }

{_answer("Twice as many pieces make four times as many scores for each head.")}

{_command("experiments.path")}
"""
    return Chapter("6-why-self-attention.md", "Why self-attention", "section 4, table 1", "experiments.path", text)


def _training(found: ExplainedSentence) -> Chapter:
    step, tree = found.training, found.tree
    place = int(np.argmax(step.plain))
    after = ((f"{factor:g}", f"{rate:.2g}", f"{loss:.2f}") for factor, rate, loss in (
        (factor, step.rate * factor, loss) for factor, loss in step.after.items()
    ))  # fmt: skip
    best, greedy = (found.target.decode(one.tokens) for one in (tree.best, tree.greedy))
    text = f"""
Nobody programmed this model. It was shown pairs of sentences. At each position it gave every piece of its vocabulary a
probability, and training moved all weights a little, so that the right piece would become likelier.

For our sentence and its translation, the model is most surprised by `{found.target_pieces[place]}`, to which it gave {
        100 * exp(-step.plain[place]):.0f} %. Its
loss there is −log p = {step.plain[place]:.2f}; the mean over all {len(step.plain)} pieces is {np.mean(step.plain):.2f}.

The paper wants the model not to be too sure: the right piece should get {
        100 * step.gold:.0f} %, and all others share the rest
(**label smoothing**, section 5.4). With that target, the mean loss is {step.loss:.2f}, and {
        step.best:.2f} is the least possible.

Then the gradient says in which direction each of {
        amount(found.parameters)
    } weights should move, and the **learning rate**
how far. Take the rate of the middle of this model's training, {
        step.rate:.2g}, and others, and make one step on this sentence
alone:

{_table(("times the rate", "rate", "loss after one step"), after)}

Too small a step changes little. Too large a step breaks everything. So the rate rises slowly at first
(**warm-up**), and
falls later.

When the model translates, no one tells it the right piece. It keeps the {
        found.search.beam
    } best beginnings and goes on with those, a
**beam search** (section 6.1). For this sentence it looked at {len(tree.candidates)} candidates and found "{
        best
    }" Taking the best
piece each time finds {_quote(greedy)} A beginning ends with the piece `</s>`, and the search ends when no other can
still beat the best of those that have ended.

## Predict, then run

Compute the smoothed loss from the recorded probabilities. What is it if the smoothing is 0?

{
        _start('''
log_probs, target = look.steps["log_probs"], look.steps["target"]
right = log_probs[np.arange(len(target)), target]
for smoothing in (0.0, 0.1):
    others = (log_probs.sum(axis=1) - right) / (log_probs.shape[1] - 1)
    print(smoothing, (-(1 - smoothing) * right - smoothing * others).mean().round(3))
''')
    }

{
        _answer(
            f"{np.mean(step.plain):.2f} without smoothing, and {step.loss:.2f} with 0.1."
            if step.config.label_smoothing == 0.1
            else f"{np.mean(step.plain):.2f} without smoothing."
        )
    }

{_command("training")}
"""
    return Chapter("7-training-and-search.md", "Training and search", "sections 5 and 6.1", "training", text)


def _descendants(found: ExplainedSentence) -> Chapter:
    weights = found.steps["decoder.1.attention.weights"]
    later = float(np.triu(weights, 1).max())
    text = f"""
The paper ends by promising to apply attention to other tasks. Others did. Almost all large models of today are one half
of figure 1, or the whole of it, with few changes:

| model | what it takes from figure 1 | what is new |
|---|---|---|
| GPT (2018) | the decoder without its look at the source | it learns to continue any text |
| BERT (2018) | the encoder | it learns to fill gaps, and sees both sides of them |
| T5 (2019) | both halves, with a number for each distance instead of sines | every task is text in, text out |
| ViT (2020) | the encoder | the pieces are patches of a picture |
| CLIP (2021) | two encoders, one for pictures and one for text | matching pairs get similar vectors |

What changed in most of them: the norm comes before each sub-layer, and positions are learned instead of computed. This
course's model has a norm before each sub-layer and learns a number for each distance. What stayed: equation 1, to the
letter.

The decoder of our model already contains a GPT. Its self-attention never looks ahead: the largest share of a later
piece, in all heads, is {later:g}. Take the look at the source away, and train it on text alone, and you have one.

## Predict, then run

Which shares of the decoder's self-attention must be exactly 0? What does the first row look like, and why?

{
        _start('''
weights = look.steps["decoder.1.attention.weights"][0]
print(weights.round(2))
print(np.triu(weights, 1).max(), weights[0, 0])
''')
    }

{_answer("All above the diagonal. The first row has one share, 1.0: at the start there is only the start symbol.")}

## Where to go on

Look into a GPT as you looked into this model. It learns from any text file, and its steps have the same names, up to
the draw of each new character:

```console
$ heedful train --text book.txt --out runs/gpt
$ heedful explain runs/gpt "Once upon a time" --open
```

- [Continue text](../how-to/complete.md): how to train a GPT, and what it takes.
- [The descendants, line by line](../family-map.md): what each changed against figure 1, and where it is in the code.
- [The paper, line by line](../paper-map.md): where each statement of the paper is in the code.
- [The paper's studies](../how-to/studies.md): train models without a part, and see what they learn.
- [Train your own](../how-to/train.md), and explain it: `heedful explain` takes every Transformer that translates, every
  GPT, and the recurrent and convolutional rivals as far as they have parts of figure 1.
"""
    return Chapter("8-what-became-of-it.md", "What became of it", "section 7, and after", "often-said", text)


def main() -> None:
    """Write all files."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, text in render_files(write_chapters(explain_example())).items():
        (FOLDER / name).write_text(text, encoding="utf-8", newline="\n")
        sys.stdout.write(f"{FOLDER / name}\n")


if __name__ == "__main__":
    main()
