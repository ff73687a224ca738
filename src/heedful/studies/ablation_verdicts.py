"""One sentence of what broke, worked out from the numbers of a row and of the whole model."""

from collections.abc import Callable

from heedful.studies.ablation_row import Row

Verdict = Callable[[Row, Row], str]

_NOISE = 3.0  # a difference in BLEU that means nothing: there is one seed a row, on few sentences


def whole(row: Row, _: Row) -> str:
    """The measure of all others."""
    return f"{row.exact:.0f} % of the sentences are right to the last word"


def compared(row: Row, reference: Row) -> str:
    """What became of the score."""
    now, before = row.bleu, reference.bleu
    if row.stopped:
        return f"training broke off: {row.stopped}; BLEU {now:.1f} against {before:.1f}"
    if now < before / 2:
        return f"it hardly learns: BLEU {now:.1f} against {before:.1f}"
    if now < before - _NOISE:
        return f"worse by {before - now:.1f} BLEU"
    if now > before + _NOISE:
        return f"no harm at this scale: better by {now - before:.1f} BLEU"
    return f"no effect shows at this scale: BLEU {now:.1f} against {before:.1f}"


def positions(row: Row, reference: Row) -> str:
    """Whether the encoder still knows the order of words."""
    (first, one), (second, other) = row.orders
    same = "the same translation" if one == other else "different translations"
    moved = _number(row.orders_differ)
    return (
        f"{compared(row, reference)}; '{first}' and '{second}' give the same memory to {moved} "
        f"(whole: {_number(reference.orders_differ)}) and {same}"
    )


def look_ahead(row: Row, reference: Row) -> str:
    """Whether it learnt to copy the answer."""
    losses = (
        f"training loss {_number(row.training_loss)} (whole: {_number(reference.training_loss)}), validation loss "
        f"{_number(row.validation_loss)} (whole: {_number(reference.validation_loss)})"
    )
    if _less(row.validation_loss, reference.validation_loss) and row.bleu < reference.bleu - _NOISE:
        return f"{losses}, but BLEU {row.bleu:.1f}: it copied the answer that it saw"
    return f"{losses}; {compared(row, reference)}"


def padding(row: Row, reference: Row) -> str:
    """Whether a translation depends on its neighbours."""
    changed = (
        f"{row.together_changed:.0f} % of the translations change beside a longer sentence "
        f"(whole: {reference.together_changed:.0f} %)"
    )
    if row.together_changed <= reference.together_changed:
        return f"{changed}; {compared(row, reference)}"
    return f"{changed}: BLEU {row.together_bleu:.1f}, {row.alone_bleu:.1f} among its like"


def dropout(row: Row, reference: Row) -> str:
    """Whether it learnt by heart."""
    gap = (
        f"validation loss {_number(row.validation_loss)} over a training loss of {_number(row.training_loss)} "
        f"(whole: {_number(reference.validation_loss)} over {_number(reference.training_loss)})"
    )
    return f"{compared(row, reference)}; {gap}"


def smoothing(row: Row, reference: Row) -> str:
    """The paper: it hurts perplexity and helps BLEU."""
    return f"perplexity {_number(row.perplexity)} against {_number(reference.perplexity)}; {compared(row, reference)}"


def _number(value: float | None) -> str:
    return "no number" if value is None else f"{value:.2g}"


def _less(value: float | None, other: float | None) -> bool:
    return value is not None and other is not None and value < other
