"""The report on all heads: as a page, as a table for the terminal, and as JSON."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from html import escape

from heedful.attention.head_names import KINDS, Head
from heedful.attention.measures import AttentionShare, HeadMeasures
from heedful.attention.roles import ROLE_COLOURS, Role, RoleName, percent
from heedful.inspection.drawing import TITLES
from heedful.nn.multi_head import Kind
from heedful.pages.inline import asset, load_script, text_in_page, whole_page

Importance = Mapping[Head, float]  # the change in validation loss when the head is off

_IMPORTANCE = "How much the loss on the given translations rises when the head is switched off; below zero, it falls."
_ROLES: dict[RoleName, str] = {
    "previous token": "attends to the token before; in the decoder, to the token just generated",
    "next token": "attends to the token after",
    "same token": "attends to its own token",
    "alignment": "follows the other sentence along the diagonal",
    "delimiter": "attends to punctuation and to the start or the end of the sentence",
    "rare word": "attends to the rarest tokens of the text",
    "positional": "attends to the same three neighbouring positions in most sentences",
    "broad": "attends to many tokens at once",
    "mixed": "no role stands out",
}


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
    _Column("direction", "The same with its sign: below zero is earlier, above zero is later.", lambda m: m.direction),
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


def report_text(
    measures: Mapping[Head, HeadMeasures], roles: Mapping[Head, Role], importance: Importance | None = None
) -> list[tuple[str, ...]]:
    """Rows for the terminal; the first holds the column titles."""
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
    """All measurements by head name."""
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
<p>{len(measures)} heads of <strong>{text_in_page(model_name)}</strong>, measured on {corpus}.</p>
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
        for name, meaning in _ROLES.items()
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
