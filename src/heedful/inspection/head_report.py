"""What all heads do: as a page, as rows for a terminal, as JSON."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from html import escape

from heedful.attention.head_names import KINDS, Head
from heedful.attention.measures import Measures, Share
from heedful.attention.roles import ROLE_COLOURS, Role, RoleName, percent
from heedful.inspection.drawing import TITLES
from heedful.nn.heads import Kind
from heedful.pages.inline import asset, text_in_page, whole_page

Importance = Mapping[Head, float]  # the change in validation loss when the head is off

_IMPORTANCE = "How much the loss of the given translations rises when the head is switched off; below zero, it falls."
_ROLES: dict[RoleName, str] = {
    "previous token": "looks at the token before; in the decoder at the piece just written",
    "next token": "looks at the token after",
    "same token": "looks at its own token",
    "alignment": "follows the other sentence along the diagonal",
    "delimiter": "looks at punctuation and at the end or the start of the sentence",
    "rare word": "looks at the rarest pieces of the text",
    "positional": "looks at the same three neighbouring places in most sentences",
    "broad": "looks at many keys at once",
    "mixed": "none of these stands out",
}


@dataclass(frozen=True, slots=True)
class _Column:
    title: str
    meaning: str
    value: Callable[[Measures], float | Share]


_COLUMNS = (
    _Column("entropy", "How spread a row of weights is, in nats: 0 is one key alone.", lambda m: m.entropy),
    _Column("spread", "Entropy over the largest that the row could have: 1 is all keys alike.", lambda m: m.spread),
    _Column("strongest", "The largest weight of a row.", lambda m: m.strongest),
    _Column(
        "distance",
        "How many pieces away the weight lies. In cross attention from the place that is as far along in the source.",
        lambda m: m.distance,
    ),
    _Column("direction", "The same with its sign: below zero is back, above zero is ahead.", lambda m: m.direction),
    _Column(
        "previous", "Weight on the previous token; in the decoder, on the piece just written.", lambda m: m.previous
    ),
    _Column("same", "Weight on the token itself, which a decoder cannot see yet.", lambda m: m.same),
    _Column("next", "Weight on the next token, which a decoder cannot see yet.", lambda m: m.next),
    _Column(
        "diagonal",
        "Weight at most one piece away: in cross attention, on what a word-by-word translation would look at.",
        lambda m: m.diagonal,
    ),
    _Column("punctuation", "Weight on punctuation.", lambda m: m.punctuation),
    _Column("EOS", "Weight on the end-of-sentence piece; in the decoder, on the start symbol.", lambda m: m.special),
    _Column("rare", "Weight on the rarest pieces, in the rows of sentences that have any.", lambda m: m.rare),
    _Column(
        "stability",
        "How alike its pattern is from sentence to sentence: one over the number of patterns that it effectively has, "
        "where a pattern is the weight of each offset from -8 to 8.",
        lambda m: m.stability,
    ),
)


def report_text(
    measures: Mapping[Head, Measures], roles: Mapping[Head, Role], importance: Importance | None = None
) -> list[tuple[str, ...]]:
    """Rows for a terminal, the first of them the titles."""
    extra = ("importance",) if importance is not None else ()
    rows = [("head", "role", "entropy", "distance", "stability", *extra, "evidence")]
    for head, measured in measures.items():
        numbers = (f"{measured.entropy:.2f}", f"{measured.distance:.1f}", f"{measured.stability:.2f}")
        matters = (_importance(importance, head),) if importance is not None else ()
        rows.append((str(head), roles[head].name, *numbers, *matters, roles[head].evidence))
    return rows


def report_json(
    measures: Mapping[Head, Measures], roles: Mapping[Head, Role], importance: Importance | None = None
) -> dict[str, object]:
    """The same with all numbers, by the names of the heads."""
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
    measures: Mapping[Head, Measures],
    roles: Mapping[Head, Role],
    importance: Importance | None = None,
) -> str:
    """One HTML file, everything inlined; its policy lets no text in it act, and nothing be loaded."""
    style = (
        asset("theme.css")
        + asset("plain.css")
        + asset("report.css", "inspection")
        + "".join(f".{_class(name)} {{ --role: {colour}; }}\n" for name, colour in ROLE_COLOURS.items())
    )
    sentences = max((measured.sentences for measured in measures.values()), default=0)
    main = f"""<h1>What each head does</h1>
<p>{len(measures)} heads of <strong>{text_in_page(model_name)}</strong>, measured on {sentences} sentences and their
translations.</p>
<h2>Roles</h2>
{_legend(roles)}
<div class="grids">{"".join(_grid(kind, roles) for kind in KINDS if any(head.kind == kind for head in roles))}</div>
<h2 id="numbers">Numbers</h2>
<p>A share is of the weight in the rows that can see such a key; the small number is what a head would have that looks
at all keys alike. The stronger the colour of a share, the further it is over that. Press a title to sort by it, and
again to turn the order round.</p>
{_table(measures, roles, importance)}
<h2>Columns</h2>
{_meanings(importance)}"""
    return whole_page(f"{model_name}: what each head does", style, asset("report.js", "inspection"), main)


def _legend(roles: Mapping[Head, Role]) -> str:
    counts = Counter(role.name for role in roles.values())
    items = (
        f'<li><span class="role {_class(name)}">{name}</span> <b>{counts[name]}</b> {meaning}</li>'
        for name, meaning in _ROLES.items()
        if counts[name]
    )
    return f'<ul class="legend">{"".join(items)}</ul>'


def _grid(kind: Kind, roles: Mapping[Head, Role]) -> str:
    """Layers by heads; after pruning, layers may have fewer."""
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


def _table(measures: Mapping[Head, Measures], roles: Mapping[Head, Role], importance: Importance | None) -> str:
    titles = ["head", "role", *(["importance"] if importance is not None else [])]
    titles += [column.title for column in _COLUMNS]
    header = "".join(f'<th scope="col"><button type="button">{title}</button></th>' for title in titles)
    rows = "".join(_row(number, head, measures[head], roles[head], importance) for number, head in enumerate(measures))
    return (
        '<div class="scroll" role="region" aria-labelledby="numbers" tabindex="0">'
        f'<table class="numbers" aria-labelledby="numbers"><thead><tr>{header}</tr></thead>'
        f"<tbody>{rows}</tbody></table></div>"
    )


def _row(number: int, head: Head, measured: Measures, role: Role, importance: Importance | None) -> str:
    matters = ""
    if importance is not None:
        matters = f'<td data-value="{importance.get(head, "-Infinity")}">{_importance(importance, head)}</td>'
    values = "".join(_number(column.value(measured)) for column in _COLUMNS)
    return (
        f'<tr id="{head}"><th scope="row" data-value="{number}">{head}</th>'
        f'<td data-value="{role.name}"><span class="role {_class(role.name)}">{role.name}</span>'
        f"<small>{escape(role.evidence)}</small></td>{matters}{values}</tr>\n"
    )


def _number(value: float | Share) -> str:
    if isinstance(value, float):
        return f'<td data-value="{value:.6f}">{value:.2f}</td>'
    if value.chance == 0.0:  # nothing to look at
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
