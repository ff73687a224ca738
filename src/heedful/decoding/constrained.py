"""Beam search whose outputs all contain the phrases that are required of them (Post and Vilar, 2018).

The tokens that continue a phrase are always candidates. The beam is divided between hypotheses that have many tokens of
their phrases and those that have few, so the improbable first token of a phrase is not crowded out by hypotheses
without it. Once the output has only just enough room left, every token must continue a phrase.

An automaton counts how far each hypothesis has come with its phrases.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, groupby, zip_longest

import torch
from jaxtyping import Float, Int
from torch import Tensor

from heedful.config.experiment import SearchConfig
from heedful.decoding.hypothesis import NOT_FINITE, Hypothesis, check_search_options, length_penalty
from heedful.decoding.step_function import NEVER, S, SpecialTokens, StepFunction, select_rows
from heedful.decoding.token_constraints import (
    Phrase,
    TokenConstraints,
    WordBoundaries,
    check_constraints,
    no_room_error,
)
from heedful.decoding.token_rules import make_token_rules
from heedful.decoding.topk import top_log_probs
from heedful.errors import Diverged

START = 0  # the state of an empty output


@dataclass(frozen=True, slots=True)
class _Spelling:
    """One way to write a phrase."""

    phrase: int
    tokens: tuple[int, ...]
    close: bool = False  # only where no space has to come before it
    first: bool = False  # only at the beginning


@dataclass(frozen=True, slots=True)
class _State:
    """Everything about the tokens so far that matters for the phrases."""

    met: frozenset[int]  # phrases that the output contains, whatever follows
    ended: frozenset[int]  # phrases that are met unless the next token extends their last word
    inflected: frozenset[int]  # the same, for phrases that have an ending already
    begun: frozenset[tuple[int, int]]  # spellings, each with the number of its tokens that the output ends with
    open: bool  # whether a word may begin without a space
    empty: bool = False  # whether there are no tokens


class PhraseAutomaton:
    """A state machine over tokens. Its states are numbers and are made when first reached; short phrases have few."""

    def __init__(self, phrases: Sequence[Phrase], boundaries: WordBoundaries) -> None:
        self._boundaries = boundaries
        self._sizes = [len(phrase.tokens) for phrase in phrases]
        spellings = [_Spelling(number, phrase.tokens) for number, phrase in enumerate(phrases)]
        spellings += [_Spelling(n, phrase.close, close=True) for n, phrase in enumerate(phrases) if phrase.close]
        spellings += [_Spelling(n, phrase.capital, first=True) for n, phrase in enumerate(phrases) if phrase.capital]
        self._inflecting = frozenset(number for number, phrase in enumerate(phrases) if phrase.inflects)
        # A phrase that is required twice is met by its second occurrence: the first copy has to be met before.
        self._before = {
            number: max(n for n in range(number) if phrases[n] == phrase)
            for number, phrase in enumerate(phrases)
            if phrase in phrases[:number]
        }
        self._spellings = spellings
        self._alphabet = frozenset(token for spelling in self._spellings for token in spelling.tokens)
        self._states: list[_State] = []
        self._numbers: dict[_State, int] = {}
        self._transitions: dict[tuple[int, int], int] = {}
        self._remaining: list[int] = []
        self._continuations: list[tuple[int, ...]] = []
        nothing: frozenset[int] = frozenset()
        self._number(_State(nothing, nothing, nothing, frozenset(), open=True, empty=True))

    def advance(self, state: int, token: int) -> int:
        """The state after one more token."""
        if token not in self._alphabet:  # outside all phrases, only the kind of a token matters
            glues, opens = token in self._boundaries.glues, token in self._boundaries.opens
            kind = -1 - glues - 2 * opens - 4 * (token in self._boundaries.endings)
            found = self._transitions.get((state, kind))
            if found is None:
                found = self._transitions[state, kind] = self._number(self._after(state, token))
            return found
        found = self._transitions.get((state, token))
        if found is None:
            found = self._transitions[state, token] = self._number(self._after(state, token))
        return found

    def remaining(self, state: int) -> int:
        """The number of tokens that are enough to meet all phrases; some token of `continuations` always lowers it.

        Overlapping phrases might need fewer: the count assumes that no phrase begins as another ends.
        """
        return self._remaining[state]

    def continuations(self, state: int) -> tuple[int, ...]:
        """The tokens that continue a phrase, or begin one that is not met."""
        return self._continuations[state]

    def _number(self, state: _State) -> int:
        number = self._numbers.get(state)
        if number is None:
            number = self._numbers[state] = len(self._states)
            self._states.append(state)
            self._remaining.append(self._count_remaining(state))
            missing = self._in_progress(state, state.met | state.ended | state.inflected)
            self._continuations.append(tuple(sorted({self._spellings[n].tokens[written] for n, written in missing})))
        return number

    def _in_progress(self, state: _State, met: frozenset[int]) -> set[tuple[int, int]]:
        """The spellings of phrases that are not met which the next token may continue or begin."""
        fresh = {
            (n, 0)
            for n, spelling in enumerate(self._spellings)
            if (state.open or not spelling.close) and (state.empty or not spelling.first)
        }
        return {(n, written) for n, written in fresh | state.begun if self._is_next(self._spellings[n].phrase, met)}

    def _is_next(self, phrase: int, met: frozenset[int]) -> bool:
        """Whether a phrase is not met, but the same phrase before it is."""
        return phrase not in met and (phrase not in self._before or self._before[phrase] in met)

    def _after(self, number: int, token: int) -> _State:
        state, spellings = self._states[number], self._spellings
        glued = token in self._boundaries.glues
        met = state.met if glued else state.met | state.ended | state.inflected
        inflected = state.ended & self._inflecting if token in self._boundaries.endings else frozenset[int]()
        advanced = {
            (n, written + 1) for n, written in self._in_progress(state, met) if spellings[n].tokens[written] == token
        }
        ended = {spellings[n].phrase for n, written in advanced if written == len(spellings[n].tokens)}
        # A phrase that has ended may overlap itself: if the next token extends its last word, a second copy counts.
        begun = {(n, written) for n, written in advanced if written < len(spellings[n].tokens)}
        return _State(met, frozenset(ended), inflected - ended, frozenset(begun), token in self._boundaries.opens)

    def _count_remaining(self, state: _State) -> int:
        """See `remaining`: phrases that ended stay met, or a phrase in progress continues and extends them."""
        kept = self._count_missing(state, state.met | state.ended | state.inflected, glued=False)
        ended = state.ended or state.inflected
        return min(kept, self._count_missing(state, state.met, glued=True)) if ended else kept

    def _count_missing(self, state: _State, met: frozenset[int], *, glued: bool) -> int:
        """The tokens of all other phrases, minus those already written of the one that has come furthest."""
        sizes, glues = self._sizes, self._boundaries.glues
        free = glued or not (state.ended or state.inflected)
        written_of = [
            sizes[spelling.phrase] - (len(spelling.tokens) - written)
            for spelling, written in ((self._spellings[number], written) for number, written in state.begun)
            if spelling.phrase not in met and (free or spelling.tokens[written] not in glues)
        ]
        whole = sum(size for phrase, size in enumerate(sizes) if phrase not in met)
        return whole - max(written_of, default=0) if written_of and max(written_of) > 0 else whole


@dataclass(frozen=True, slots=True)
class _Row:
    """A hypothesis; `parent` is its row in the previous step."""

    parent: int
    log_prob: float
    tokens: tuple[int, ...]
    progress: int  # the state of its sentence's automaton


@dataclass(slots=True)
class _SentenceSearch:
    """The state of the search for one sentence, with the best outputs so far."""

    automaton: PhraseAutomaton
    prefix: tuple[int, ...]
    max_length: int
    active: list[_Row] = field(default_factory=lambda: [_Row(0, 0.0, (), START)])
    finished: list[Hypothesis] = field(default_factory=list)
    cut_off: list[Hypothesis] = field(default_factory=list)


def constrained_search(
    step: StepFunction[S],
    state: S,
    special: SpecialTokens,
    max_lengths: Int[Tensor, " sentences"],
    config: SearchConfig,
    constraints: Sequence[TokenConstraints],
    boundaries: WordBoundaries,
    *,
    n_best: int = 1,
) -> list[list[Hypothesis]]:
    """The best hypotheses of each sentence that meet its constraints, best first."""
    check_search_options(config, n_best)
    check_constraints(constraints, special, boundaries)
    sentences = [
        _start_sentence(each, boundaries, limit)
        for each, limit in zip(constraints, max_lengths.clamp(min=1).tolist(), strict=True)
    ]
    rules = make_token_rules(special, config, max_lengths.device, [each.prefix for each in constraints])
    history = max_lengths.new_empty(len(sentences), 0)
    tokens = torch.full_like(max_lengths, special.start)
    length = 0
    while len(tokens):
        length += 1
        logits, state = step(tokens, state)
        owners = [number for number, sentence in enumerate(sentences) for _ in sentence.active]
        log_probs = rules.log_probs(logits, length, history, tokens.new_tensor(owners))
        continuations = _list_continuations(logits, log_probs, sentences, special.eos, length, config)
        for sentence in sentences:
            found = [_extend(sentence, *next(continuations)) for _ in sentence.active]
            _select(sentence, list(chain.from_iterable(found)), special.eos, config, n_best)
        rows = [row for sentence in sentences for row in sentence.active]
        parents = tokens.new_tensor([row.parent for row in rows])
        if rows:
            state = select_rows(state, parents, len(tokens))
        tokens = tokens.new_tensor([row.tokens[-1] for row in rows])
        history = rules.extend_history(history, parents, tokens)
    results = [(sentence.finished + sentence.cut_off)[:n_best] for sentence in sentences]
    if not all(results):
        raise Diverged(NOT_FINITE)
    return results


def _start_sentence(constraints: TokenConstraints, boundaries: WordBoundaries, max_length: int) -> _SentenceSearch:
    """Start the search for one sentence; constraints that do not fit into `max_length` are refused."""
    automaton = PhraseAutomaton(constraints.phrases, boundaries)
    progress = START
    for token in constraints.prefix:
        progress = automaton.advance(progress, token)
    required = len(constraints.prefix) + automaton.remaining(progress)
    if required >= max_length:
        raise no_room_error(required, max_length - 1)
    return _SentenceSearch(automaton, constraints.prefix, max_length)


def _list_continuations(
    logits: Float[Tensor, "rows vocabulary"],
    log_probs: Float[Tensor, "rows vocabulary"],
    sentences: Sequence[_SentenceSearch],
    eos: int,
    length: int,
    config: SearchConfig,
) -> Iterator[tuple[int, _Row, dict[int, float]]]:
    """For each row its number, itself, and the tokens that may follow with their log-probabilities.

    These are the likeliest tokens, all tokens that continue a phrase, and EOS.
    """
    values, ids = (column.tolist() for column in top_log_probs(log_probs, 2 * config.beam))
    plain = logits.float().log_softmax(dim=1)  # a rule against repeats must not exclude a required token
    rows = [(sentence, row) for sentence in sentences for row in sentence.active]
    required: list[tuple[int, int]] = []
    for number, (sentence, row) in enumerate(rows):
        if length > len(sentence.prefix):
            required += [(number, token) for token in sentence.automaton.continuations(row.progress)]
            required.append((number, eos))
    more: list[dict[int, float]] = [{} for _ in rows]
    if required:
        numbers, tokens = zip(*required, strict=True)
        for (number, token), value in zip(required, plain[list(numbers), list(tokens)].tolist(), strict=True):
            more[number][token] = value
    for number, (_, row) in enumerate(rows):
        likely = {token: value for token, value in zip(ids[number], values[number], strict=True) if token != eos}
        yield number, row, likely | more[number]


def _extend(sentence: _SentenceSearch, number: int, row: _Row, continuations: dict[int, float]) -> Iterator[_Row]:
    for token, value in continuations.items():
        if value > NEVER:
            progress = sentence.automaton.advance(row.progress, token)
            yield _Row(number, row.log_prob + min(value, 0.0), (*row.tokens, token), progress)


def _select(sentence: _SentenceSearch, found: list[_Row], eos: int, config: SearchConfig, n_best: int) -> None:
    """Collect the rows that end, and choose those that stay active."""
    found.sort(key=lambda row: -row.log_prob)
    remaining = sentence.automaton.remaining
    unfinished = []
    too_short: list[Hypothesis] = []
    for row in found:
        length = len(row.tokens)
        score = row.log_prob / length_penalty(float(length), config.alpha, config.penalty)
        if row.tokens[-1] == eos:
            if remaining(row.progress) == 0:
                long_enough = length > config.min_length or length == sentence.max_length
                (sentence.finished if long_enough else too_short).append(Hypothesis(row.tokens, row.log_prob, score))
        elif length == sentence.max_length:
            if remaining(row.progress) == 0:
                sentence.cut_off.append(Hypothesis(row.tokens, row.log_prob, score, finished=False))
        elif length <= len(sentence.prefix) or length + remaining(row.progress) < sentence.max_length:
            unfinished.append(row)
    if not (unfinished or sentence.finished or sentence.cut_off):
        sentence.finished = too_short  # nothing else is allowed, and an output that is too short is better than none
    for several in (sentence.finished, sentence.cut_off):
        several.sort(key=lambda hypothesis: -hypothesis.score)
        del several[n_best:]
    if len(sentence.finished) == n_best:
        # As in plain beam search: drop rows that could not win even if they stayed as probable to the end.
        largest = length_penalty(float(sentence.max_length), config.alpha, config.penalty)
        unfinished = [row for row in unfinished if row.log_prob / largest > sentence.finished[-1].score]
    sentence.active = _allocate_beam(unfinished, sentence.automaton, config.beam)


def _allocate_beam(rows: list[_Row], automaton: PhraseAutomaton, beam: int) -> list[_Row]:
    """The best row of each bank, then the second of each, and so on.

    The rows of a bank have equally many tokens left; the bank with the fewest comes first.
    """
    rows.sort(key=lambda row: automaton.remaining(row.progress))  # stable: within a bank the likeliest stay in front
    banks = [list(bank) for _, bank in groupby(rows, key=lambda row: automaton.remaining(row.progress))]
    turns = chain.from_iterable(zip_longest(*banks))
    return [row for row in turns if row is not None][:beam]
