"""A comparison as one HTML file: scores, charts, and every sentence."""

from collections.abc import Sequence
from itertools import chain

from heedful.errors import counted
from heedful.metrics.breakdown import LENGTHS, BucketScore, name_bucket
from heedful.metrics.comparison import Comparison, MetricTest, SystemTest
from heedful.pages.inline import asset, json_in_page, load_script, text_in_page, whole_page

_COLOURS = 6  # slots of the theme


def comparison_page(found: Comparison) -> str:
    """The page as one HTML file that works from disk; no text in it can act."""
    style = asset("theme.css") + asset("plain.css") + asset("comparison.css", "evaluation")
    main = f"""<h1>Which system translates better?</h1>
<p>{counted(len(found.sentences), "sentence", ",")}. Every system is compared with the first one.</p>
{_systems(found)}
<ul class="verdicts">{"".join(_verdicts(found))}</ul>
<h2>Scores</h2>
{"".join(_scores(test, found.names) for test in found.tests)}
<h2>Sentence by sentence</h2>
<p>The number of sentences with a higher, equal or lower chrF than {_label(found.names, 0)}.</p>
{_wins(found)}
<div class="charts">
{_chart(f"BLEU by number of words in the {found.length_of}", "sentences", found.by_length, found.names)}
{_chart(f"Word F1 by frequency in {found.counted_in}", "words", found.by_frequency, found.names)}
</div>
<h2>All sentences</h2>
{asset("comparison.html", "evaluation")}
<h2>Method</h2>
{_method(found)}
<script type="application/json" id="document">{json_in_page(_document(found))}</script>"""
    return whole_page(" and ".join(found.names) + " compared", style, load_script("comparison.js", "evaluation"), main)


def _document(found: Comparison) -> dict[str, object]:
    return {
        "names": found.names,
        "lengthOf": found.length_of,
        "lengths": [part.name for part in found.by_length],
        "sentences": [
            {
                "number": sentence.number,
                "source": sentence.source,
                "references": sentence.references,
                "outputs": sentence.outputs,
                "chrf": [round(value, 2) for value in sentence.chrf],
                "gains": [sentence.gain(system) for system in range(len(found.names))],
                "words": sentence.words,
                "length": name_bucket(sentence.words, LENGTHS),
            }
            for sentence in found.sentences
        ],
    }


def _letter(system: int) -> str:
    """The short name of a system: A to Z, then 27."""
    return chr(ord("A") + system) if system < 26 else str(system + 1)


def _chip(system: int) -> str:
    return f'<b class="chip slot-{system % _COLOURS}">{_letter(system)}</b>'


def _label(names: Sequence[str], system: int) -> str:
    return f'<span class="system">{_chip(system)}&nbsp;{text_in_page(names[system])}</span>'


def _systems(found: Comparison) -> str:
    items = (
        f"<li>{_label(found.names, system)} <small>output length {ratio:.3f} of the reference</small></li>"
        for system, ratio in enumerate(found.length_ratios)
    )
    return f'<ul class="systems">{"".join(items)}</ul>'


def _verdicts(found: Comparison) -> list[str]:
    return [
        f"<li>{_verdict(test.metric, tested, found.names, system)}</li>"
        for system in range(1, len(found.names))
        for test in found.tests
        for tested in [test.systems[system]]
    ]


def _verdict(metric: str, tested: SystemTest, names: Sequence[str], system: int) -> str:
    first, other = _label(names, 0), _label(names, system)
    if not tested.difference:
        return f"{other} and {first} have the same {metric}."
    change = f"{abs(tested.difference):.2f} {metric} {'higher' if tested.difference > 0 else 'lower'}"
    certainty = "both tests find this significant" if tested.significant else "this may be due to chance"
    p_values = f"(p = {tested.bootstrap:.4f} and {tested.randomisation:.4f})"
    return f"{other} scores <strong>{change}</strong> than {first}; {certainty} {p_values}."


def _scores(test: MetricTest, names: Sequence[str]) -> str:
    low, high = min(one.score.low for one in test.systems), max(one.score.high for one in test.systems)
    titles = ("system", "score", "95 % confidence interval", "", "difference", "p (bootstrap)", "p (randomisation)")
    header = "".join(f'<th scope="col">{title}</th>' if title else "<td></td>" for title in titles)
    rows = "".join(_score(names, system, tested, low, high) for system, tested in enumerate(test.systems))
    return (
        f'<div class="scroll" role="region" aria-label="{test.metric}" tabindex="0"><table class="rows scores">'
        f"<caption>{test.metric}</caption><thead><tr>{header}</tr></thead><tbody>{rows}</tbody></table></div>"
    )


def _score(names: Sequence[str], system: int, tested: SystemTest, low: float, high: float) -> str:
    score, width = tested.score, (high - low) or 1.0
    left, middle, right = (5 + 90 * (value - low) / width for value in (score.low, score.value, score.high))
    drawing = (
        f'<svg class="range slot-{system % _COLOURS}" aria-hidden="true">'
        f'<line x1="{left:.2f}%" x2="{right:.2f}%" y1="50%" y2="50%"/><circle cx="{middle:.2f}%" cy="50%" r="5"/></svg>'
    )
    against = ["baseline", "", ""]
    if tested.bootstrap is not None and tested.randomisation is not None:
        against = [_change(tested.difference, 2), f"{tested.bootstrap:.4f}", f"{tested.randomisation:.4f}"]
    cells = [f"<strong>{score.value:.2f}</strong>", f"{score.low:.2f} to {score.high:.2f}", drawing, *against]
    return f'<tr><th scope="row">{_label(names, system)}</th>{"".join(f"<td>{cell}</td>" for cell in cells)}</tr>'


def _change(value: float, digits: int) -> str:
    shown = round(value, digits)
    if not shown:
        return f"{0:.{digits}f}"
    return f'<span class="{"up" if shown > 0 else "down"}">{f"{shown:+.{digits}f}".replace("-", "−")}</span>'


def _wins(found: Comparison) -> str:
    rows = []
    for system in range(1, len(found.names)):
        wins, total = found.wins(system), len(found.sentences)
        shares = [100 * count / total for count in (wins.better, wins.equal, wins.worse)]
        kinds = zip(("better", "equal", "worse"), (0.0, shares[0], shares[0] + shares[1]), shares, strict=True)
        drawing = "".join(
            f'<rect class="{kind}" x="{start:.2f}%" width="{share:.2f}%" height="100%"/>'
            for kind, start, share in kinds
        )
        counts = (
            f"<span><b>{wins.better}</b> better</span> "
            f"<span><b>{wins.equal}</b> equal ({wins.identical} identical)</span> "
            f"<span><b>{wins.worse}</b> worse</span>"
        )
        bar = f'<svg class="wins" aria-hidden="true">{drawing}</svg>'
        rows.append(f'<li>{_label(found.names, system)}{bar}<span class="counts">{counts}</span></li>')
    return f'<ul class="win-list">{"".join(rows)}</ul>'


def _chart(title: str, counted: str, parts: Sequence[BucketScore], names: Sequence[str]) -> str:
    """A bar chart as a table, with the numbers beside the bars."""
    longest = max(chain.from_iterable(part.values for part in parts)) or 1.0
    rows = []
    for part in parts:
        bars = "".join(_bar(system, value, longest, part.values[0]) for system, value in enumerate(part.values))
        rows.append(f'<tr><th scope="row">{part.name}</th><td class="number">{part.count:,}</td><td>{bars}</td></tr>')
    labels = ", ".join(_label(names, system) for system in range(len(names)))
    return (
        f'<section><h2 id="by-{counted}">{text_in_page(title)}</h2>'
        f'<table class="rows bars" aria-labelledby="by-{counted}">'
        f'<thead><tr><td></td><th scope="col" class="number">{counted}</th><th scope="col">{labels}</th></tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></section>"
    )


def _bar(system: int, value: float, longest: float, first: float) -> str:
    change = _change(value - first, 1) if system else ""
    return (
        f'<div class="bar"><span class="unseen">{_letter(system)}</span><svg class="slot-{system % _COLOURS}" '
        f'aria-hidden="true"><rect width="{100 * value / longest:.2f}%" height="100%" rx="2"/></svg>'
        f"<span>{value:.1f}</span><small>{change}</small></div>"
    )


def _method(found: Comparison) -> str:
    signatures = "".join(
        f"<dt>{test.metric}, {kind}</dt><dd><code>{signature}</code></dd>"
        for test in found.tests
        for kind, signature in (
            ("bootstrap", test.systems[0].score.signature),
            ("randomisation", test.randomisation_signature),
        )
    )
    return f"""<p>A p-value is the probability of a difference at least this large if the two systems were equally
good. The bootstrap test resamples the test set; the approximate randomisation test exchanges outputs between the two
systems. Both come from sacreBLEU. A difference is significant if both p-values are below 0.05.</p>
<p>F1 measures how many words of each sentence are right, in any order; if there are several references, the first one
counts. Scores of few sentences or words are uncertain.</p>
<dl class="signatures">{signatures}</dl>"""
