"""What each head of a model does over a corpus: measured, and reported as a page, as a table and as JSON."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from html import escape

from heedful.attention.head_names import KINDS, Head, all_heads
from heedful.attention.importance import ablate_heads
from heedful.attention.measures import AttentionShare, HeadMeasures, HeadStatistics, find_rare_pieces, mark_pieces
from heedful.attention.record import force_decode
from heedful.attention.roles import ROLE_COLOURS, ROLE_MEANINGS, Role, RoleName, name_roles, percent
from heedful.data.pairs import Pair
from heedful.data.stream import batches_by_length
from heedful.errors import ConfigError, DataError, counted
from heedful.inspection.attention_view import AttentionViewer
from heedful.inspection.drawing import TITLES
from heedful.inspection.prune import batch_pairs
from heedful.nn.multi_head import Kind
from heedful.pages.inline import asset, load_script, text_in_page, whole_page
from heedful.progress import Reporter
from heedful.storage.run_folder import RunFolder
from heedful.translation.translator import MAX_INSPECTED_PIECES

Ids = Sequence[int]
Importance = Mapping[Head, float]  # the change in validation loss when the head is off

_IMPORTANCE = "How much the loss on the given translations rises when the head is switched off; if negative, it falls."


@dataclass(frozen=True, slots=True)
class _Column:
    title: str
    meaning: str
    value: Callable[[HeadMeasures], float | AttentionShare]


_COLUMNS = (
    _Column(
        "entropy", "How spread out the weights of a row are, in nats; 0 means a single token.", lambda m: m.entropy
    ),
    _Column("spread", "Entropy divided by its maximum for the row; 1 means equal weights.", lambda m: m.spread),
    _Column("strongest", "The largest weight in a row.", lambda m: m.strongest),
    _Column(
        "distance",
        "How many tokens away the weight lies; in cross-attention, from the matching position in the source.",
        lambda m: m.distance,
    ),
    _Column("direction", "The same with a sign: negative is earlier, positive is later.", lambda m: m.direction),
    _Column(
        "previous", "Weight on the previous token; in the decoder, on the token just generated.", lambda m: m.previous
    ),
    _Column("same", "Weight on the token itself, which a decoder cannot see yet.", lambda m: m.same),
    _Column("next", "Weight on the next token, which a decoder cannot see yet.", lambda m: m.next),
    _Column(
        "diagonal",
        "Weight at most one token away; in cross-attention, where a word-by-word translation would attend.",
        lambda m: m.diagonal,
    ),
    _Column("punctuation", "Weight on punctuation.", lambda m: m.punctuation),
    _Column("EOS", "Weight on the end-of-sentence token; in the decoder, on the start symbol.", lambda m: m.special),
    _Column("rare", "Weight on the rarest tokens, in sentences that have any.", lambda m: m.rare),
    _Column(
        "stability",
        "How similar the attention pattern is from sentence to sentence: 1 divided by the effective number of "
        "patterns. A pattern is the weight at each offset from -8 to 8.",
        lambda m: m.stability,
    ),
)


@dataclass(frozen=True, slots=True)
class HeadSurvey:
    """Measurements of all heads."""

    measures: Mapping[Head, HeadMeasures]
    roles: Mapping[Head, Role]
    skipped: int  # lines that are empty or too long

    def known_roles(self) -> dict[str, object]:
        """The role of each head, as the run folder stores it for the page."""
        return {str(head): asdict(role) for head, role in self.roles.items()}


def survey_heads(viewer: AttentionViewer, lines: Sequence[str], reporter: Reporter) -> HeadSurvey:
    """Translate the lines and measure what every head attends to."""
    translator = viewer.translator
    if not translator.model.attentions:
        raise ConfigError(f"{viewer.run} holds a model without attention, so there are no heads to measure")
    encoded = translator.encode([line for line in lines if line.strip()])
    encoded = [ids for ids in encoded if len(ids) <= MAX_INSPECTED_PIECES]
    if not encoded:
        raise DataError(
            f"none of {counted(len(lines), 'line')} has text of at most {MAX_INSPECTED_PIECES} pieces; give other text"
        )
    outputs = _translate(viewer, encoded, reporter)
    statistics = _measure(viewer, encoded, outputs, reporter)
    measures = statistics.measures()
    return HeadSurvey(measures, name_roles(measures), len(lines) - len(encoded))


def _translate(viewer: AttentionViewer, sources: Sequence[Ids], reporter: Reporter) -> list[Ids]:
    found: dict[int, Ids] = {}
    for batch in batches_by_length(
        range(len(sources)), sources, viewer.search.beam, viewer.translator.engine.batch_tokens
    ):
        hypotheses = viewer.translator.decode([sources[i] for i in batch], viewer.search, 1)
        found |= {i: best[0].tokens for i, best in zip(batch, hypotheses, strict=True)}
        reporter.progress("translating", len(found), len(sources))
    return [found[i] for i in range(len(sources))]


def _measure(
    viewer: AttentionViewer, sources: Sequence[Ids], targets: Sequence[Ids], reporter: Reporter
) -> HeadStatistics:
    tokenizers, statistics, done = viewer.translator.tokenizers, HeadStatistics(), 0
    source_pieces = [tokenizers.source.pieces(ids) for ids in sources]
    target_pieces = [tokenizers.target.pieces(ids) for ids in targets]
    rare_source, rare_target = find_rare_pieces(source_pieces), find_rare_pieces(target_pieces)
    longest = [max(source, target, key=len) for source, target in zip(sources, targets, strict=True)]
    for batch in batches_by_length(range(len(sources)), longest, 1, viewer.translator.engine.batch_tokens):
        views = force_decode(viewer.translator.model, [sources[i] for i in batch], [targets[i] for i in batch])
        for i, view in zip(batch, views, strict=True):
            statistics.add(
                view.attention, mark_pieces(source_pieces[i], rare_source), mark_pieces(target_pieces[i], rare_target)
            )
        done += len(batch)
        reporter.progress("measuring heads", done, len(sources))
    return statistics


def measure_importance(viewer: AttentionViewer, pairs: Sequence[Pair], reporter: Reporter) -> dict[Head, float]:
    """The increase in loss on these pairs when each head is switched off."""
    model, batches = viewer.translator.model, batch_pairs(RunFolder(viewer.run), viewer.translator, pairs)
    return ablate_heads(
        model, batches, all_heads(model), lambda count, total: reporter.progress("switching off heads", count, total)
    )


def report_text(
    measures: Mapping[Head, HeadMeasures], roles: Mapping[Head, Role], importance: Importance | None = None
) -> list[tuple[str, ...]]:
    """The rows of a table for the terminal; the first row has the titles."""
    extra = ("importance",) if importance is not None else ()
    rows = [("head", "role", "entropy", "distance", "stability", *extra, "evidence")]
    for head, measured in measures.items():
        numbers = (f"{measured.entropy:.2f}", f"{measured.distance:.1f}", f"{measured.stability:.2f}")
        matters = (_importance(importance, head),) if importance is not None else ()
        rows.append((str(head), roles[head].name, *numbers, *matters, roles[head].evidence))
    return rows


def report_json(
    measures: Mapping[Head, HeadMeasures], roles: Mapping[Head, Role], importance: Importance | None = None
) -> dict[str, object]:
    """All measurements, by the name of the head."""
    return {
        str(head): {
            "role": roles[head].name,
            "evidence": roles[head].evidence,
            **({"importance": importance.get(head)} if importance is not None else {}),
            **asdict(measured),
        }
        for head, measured in measures.items()
    }


def report_page(
    model_name: str,
    measures: Mapping[Head, HeadMeasures],
    roles: Mapping[Head, Role],
    importance: Importance | None = None,
) -> str:
    """The report as one HTML file, whose policy allows its own script and style only, and loads nothing."""
    style = (
        asset("theme.css")
        + asset("plain.css")
        + asset("report.css", "inspection")
        + "".join(f".{_class(name)} {{ --role: {colour}; }}\n" for name, colour in ROLE_COLOURS.items())
    )
    sentences = max((measured.sentences for measured in measures.values()), default=0)
    corpus = "1 sentence and its translation" if sentences == 1 else f"{sentences} sentences and their translations"
    main = f"""<h1>What each attention head does</h1>
<p>{counted(len(measures), "head")} of <strong>{text_in_page(model_name)}</strong>, measured on {corpus}.</p>
<h2>Roles</h2>
{_legend(roles)}
<div class="grids">{"".join(_grid(kind, roles) for kind in KINDS if any(head.kind == kind for head in roles))}</div>
<h2 id="numbers">Numbers</h2>
<p>A percentage is the share of attention weight on tokens of that kind, in rows that can see one. The small number
below it is the share of a head that attends to all tokens equally; a stronger colour means a share further above it.
Click a column title to sort by it, and click again to reverse the order.</p>
{_table(measures, roles, importance)}
<h2>Columns</h2>
{_meanings(importance)}"""
    script = load_script("report.js", "inspection")
    return whole_page(f"{model_name}: what each attention head does", style, script, main)


def _legend(roles: Mapping[Head, Role]) -> str:
    counts = Counter(role.name for role in roles.values())
    items = (
        f'<li><span class="role {_class(name)}">{name}</span> <b>{counts[name]}</b> {meaning}</li>'
        for name, meaning in ROLE_MEANINGS.items()
        if counts[name]
    )
    return f'<ul class="legend">{"".join(items)}</ul>'


def _grid(kind: Kind, roles: Mapping[Head, Role]) -> str:
    """A grid of layers by heads; pruned layers have fewer heads."""
    heads = [head for head in roles if head.kind == kind]
    columns = range(1 + max(head.index for head in heads))
    titles = "".join(f'<th scope="col">head {index + 1}</th>' for index in columns)
    rows = "".join(
        f'<tr><th scope="row">layer {layer + 1}</th>'
        + "".join(_cell(Head(kind, layer, index), roles) for index in columns)
        + "</tr>"
        for layer in range(1 + max(head.layer for head in heads))
    )
    title = TITLES[kind]
    return (
        f'<div class="scroll" role="region" aria-label="{title}: roles" tabindex="0"><table class="grid">'
        f"<caption>{title}</caption><thead><tr><td></td>{titles}</tr></thead><tbody>{rows}</tbody></table></div>"
    )


def _cell(head: Head, roles: Mapping[Head, Role]) -> str:
    if head not in roles:
        return "<td></td>"
    role = roles[head]
    return (
        f'<td class="role {_class(role.name)}"><a href="#{head}" title="{escape(role.evidence)}">'
        f"{role.name}<small>{escape(role.figure)}</small></a></td>"
    )


def _table(measures: Mapping[Head, HeadMeasures], roles: Mapping[Head, Role], importance: Importance | None) -> str:
    titles = ["head", "role", *(["importance"] if importance is not None else [])]
    titles += [column.title for column in _COLUMNS]
    header = "".join(f'<th scope="col"><button type="button">{title}</button></th>' for title in titles)
    rows = "".join(_row(number, head, measures[head], roles[head], importance) for number, head in enumerate(measures))
    return (
        '<div class="scroll" role="region" aria-labelledby="numbers" tabindex="0">'
        f'<table class="numbers" aria-labelledby="numbers"><thead><tr>{header}</tr></thead>'
        f"<tbody>{rows}</tbody></table></div>"
    )


def _row(number: int, head: Head, measured: HeadMeasures, role: Role, importance: Importance | None) -> str:
    matters = ""
    if importance is not None:
        matters = f'<td data-value="{importance.get(head, "-Infinity")}">{_importance(importance, head)}</td>'
    values = "".join(_number(column.value(measured)) for column in _COLUMNS)
    return (
        f'<tr id="{head}"><th scope="row" data-value="{number}">{head}</th>'
        f'<td data-value="{role.name}"><span class="role {_class(role.name)}">{role.name}</span>'
        f"<small>{escape(role.evidence)}</small></td>{matters}{values}</tr>\n"
    )


def _number(value: float | AttentionShare) -> str:
    if isinstance(value, float):
        return f'<td data-value="{value:.6f}">{value:.2f}</td>'
    if value.chance == 0.0:  # no such keys in the corpus
        return '<td data-value="-1">–</td>'
    heat = min(4, max(0, round(5 * value.over_chance)))
    return (
        f'<td class="heat-{heat}" data-value="{value.share:.6f}">{percent(value.share)}'
        f"<small>{percent(value.chance)}</small></td>"
    )


def _meanings(importance: Importance | None) -> str:
    meanings = [("importance", _IMPORTANCE)] if importance is not None else []
    meanings += [(column.title, column.meaning) for column in _COLUMNS]
    return f"<dl>{''.join(f'<div><dt>{title}</dt><dd>{meaning}</dd></div>' for title, meaning in meanings)}</dl>"


def _importance(importance: Importance, head: Head) -> str:
    return f"{importance[head]:.4f}" if head in importance else "–"


def _class(name: RoleName) -> str:
    return name.replace(" ", "-")
