"""Beam search whose every output has the phrases that are demanded of it.

After Post and Vilar (2018): what continues a phrase is always among the candidates, and the beam is shared out between
those that have more and those that have less of their phrases, so that the improbable first step into a phrase isn't
lost to outputs without it. Where there is only just room left, nothing but phrases is said.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, groupby, zip_longest

import torch
from jaxtyping import Float, Int
from torch import Tensor

from heedful.config.experiment import SearchConfig
from heedful.decoding.automaton import START, Automaton
from heedful.decoding.checks import NOT_NUMBERS, check_search
from heedful.decoding.constraints import Borders, Demand, check_demands, too_long
from heedful.decoding.hypothesis import Hypothesis
from heedful.decoding.length_penalty import length_penalty
from heedful.decoding.stepping import NEVER, S, Step, Symbols, select_rows
from heedful.decoding.token_rules import rules_of
from heedful.decoding.topk import top_log_probs
from heedful.errors import Diverged


@dataclass(frozen=True, slots=True)
class _Row:
    """A hypothesis; `parent` is its row in the step before."""

    parent: int
    log_prob: float
    tokens: tuple[int, ...]
    place: int  # of its sentence's automaton


@dataclass(slots=True)
class _Sentence:
    """One sentence's search so far; its best outputs, as many as were asked for."""

    automaton: Automaton
    prefix: tuple[int, ...]
    max_length: int
    live: list[_Row] = field(default_factory=lambda: [_Row(0, 0.0, (), START)])
    finished: list[Hypothesis] = field(default_factory=list)
    cut_off: list[Hypothesis] = field(default_factory=list)


def constrained_search(
    step: Step[S],
    state: S,
    symbols: Symbols,
    max_lengths: Int[Tensor, " sentences"],
    config: SearchConfig,
    demands: Sequence[Demand],
    borders: Borders,
    *,
    n_best: int = 1,
) -> list[list[Hypothesis]]:
    """The best hypotheses of each sentence, best first, each with all that is demanded of it."""
    check_search(config, n_best)
    check_demands(demands, symbols, borders)
    sentences = [
        _begin(demand, borders, limit) for demand, limit in zip(demands, max_lengths.clamp(min=1).tolist(), strict=True)
    ]
    rules = rules_of(symbols, config, max_lengths.device, [demand.prefix for demand in demands])
    history = max_lengths.new_empty(len(sentences), 0)
    tokens = torch.full_like(max_lengths, symbols.start)
    length = 0
    while len(tokens):
        length += 1
        logits, state = step(tokens, state)
        owners = [number for number, sentence in enumerate(sentences) for _ in sentence.live]
        log_probs = rules.log_probs(logits, length, history, tokens.new_tensor(owners))
        offers = _offers(logits, log_probs, sentences, symbols.eos, length, config)
        for sentence in sentences:
            found = [_grown(sentence, *next(offers)) for _ in sentence.live]
            _go_on(sentence, list(chain.from_iterable(found)), symbols.eos, config, n_best)
        rows = [row for sentence in sentences for row in sentence.live]
        parents = tokens.new_tensor([row.parent for row in rows])
        if rows:
            state = select_rows(state, parents, len(tokens))
        tokens = tokens.new_tensor([row.tokens[-1] for row in rows])
        history = rules.remember(history, parents, tokens)
    results = [(sentence.finished + sentence.cut_off)[:n_best] for sentence in sentences]
    if not all(results):
        raise Diverged(NOT_NUMBERS)
    return results


def _begin(demand: Demand, borders: Borders, max_length: int) -> _Sentence:
    """Refuses what there is no room for."""
    automaton = Automaton(demand.phrases, borders)
    place = START
    for token in demand.prefix:
        place = automaton.move(place, token)
    needed = len(demand.prefix) + automaton.left(place)
    if needed >= max_length:
        raise too_long(needed, max_length - 1)
    return _Sentence(automaton, demand.prefix, max_length)


def _offers(
    logits: Float[Tensor, "rows vocabulary"],
    log_probs: Float[Tensor, "rows vocabulary"],
    sentences: Sequence[_Sentence],
    eos: int,
    length: int,
    config: SearchConfig,
) -> Iterator[tuple[int, _Row, dict[int, float]]]:
    """For each row its number, itself, and the tokens that may follow with their log-probabilities.

    These are the likeliest, whatever goes on with a phrase, and the end where all phrases are met.
    """
    values, ids = (column.tolist() for column in top_log_probs(log_probs, 2 * config.beam))
    plain = logits.float().log_softmax(dim=1)  # a rule against repeats must not keep out what is demanded
    rows = [(sentence, row) for sentence in sentences for row in sentence.live]
    asked: list[tuple[int, int]] = []
    for number, (sentence, row) in enumerate(rows):
        if length > len(sentence.prefix):
            asked += [(number, token) for token in sentence.automaton.wanted(row.place)]
            if length > config.min_length or length == sentence.max_length:
                asked.append((number, eos))
    more: list[dict[int, float]] = [{} for _ in rows]
    if asked:
        places, tokens = zip(*asked, strict=True)
        for (number, token), value in zip(asked, plain[list(places), list(tokens)].tolist(), strict=True):
            more[number][token] = value
    for number, (_, row) in enumerate(rows):
        likely = {token: value for token, value in zip(ids[number], values[number], strict=True) if token != eos}
        yield number, row, likely | more[number]


def _grown(sentence: _Sentence, number: int, row: _Row, offers: dict[int, float]) -> Iterator[_Row]:
    for token, value in offers.items():
        if value > NEVER:
            place = sentence.automaton.move(row.place, token)
            yield _Row(number, row.log_prob + min(value, 0.0), (*row.tokens, token), place)


def _go_on(sentence: _Sentence, found: list[_Row], eos: int, config: SearchConfig, n_best: int) -> None:
    """Put those that end where they belong, and choose who lives on."""
    found.sort(key=lambda row: -row.log_prob)
    left = sentence.automaton.left
    open_ones = []
    for row in found:
        length = len(row.tokens)
        score = row.log_prob / length_penalty(float(length), config.alpha, config.penalty)
        if row.tokens[-1] == eos:
            if left(row.place) == 0:
                sentence.finished.append(Hypothesis(row.tokens, row.log_prob, score))
        elif length == sentence.max_length:
            if left(row.place) == 0:
                sentence.cut_off.append(Hypothesis(row.tokens, row.log_prob, score, finished=False))
        elif length <= len(sentence.prefix) or length + left(row.place) < sentence.max_length:
            open_ones.append(row)
    for several in (sentence.finished, sentence.cut_off):
        several.sort(key=lambda hypothesis: -hypothesis.score)
        del several[n_best:]
    if len(sentence.finished) == n_best:
        # As in plain beam search: what could not win even if it stayed as probable up to the maximum is dropped.
        largest = length_penalty(float(sentence.max_length), config.alpha, config.penalty)
        open_ones = [row for row in open_ones if row.log_prob / largest > sentence.finished[-1].score]
    sentence.live = _shared_out(open_ones, sentence.automaton, config.beam)


def _shared_out(rows: list[_Row], automaton: Automaton, beam: int) -> list[_Row]:
    """The best of each bank, then the second of each, and so on. A bank has equally much left; the fullest is first."""
    rows.sort(key=lambda row: automaton.left(row.place))  # stable: within a bank the likeliest stay in front
    banks = [list(bank) for _, bank in groupby(rows, key=lambda row: automaton.left(row.place))]
    turns = chain.from_iterable(zip_longest(*banks))
    return [row for row in turns if row is not None][:beam]
