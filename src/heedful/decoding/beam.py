"""Beam search as in section 6.1, over any step function."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from heedful.config.experiment import SearchConfig
from heedful.decoding.hypothesis import NOT_FINITE, Hypothesis, check_search_options, length_penalty
from heedful.decoding.step_function import NEVER, S, SpecialTokens, StepFunction, select_rows
from heedful.decoding.token_rules import make_token_rules
from heedful.errors import Diverged


@dataclass(frozen=True, slots=True)
class ActiveHypotheses:
    """The hypotheses that may still win; each is one row of the model's state."""

    slots: Int[Tensor, " rows"]  # sentence x beam + rank within the sentence
    log_probs: Float[Tensor, " rows"]
    tokens: Int[Tensor, " rows"]  # the last token of each
    history: Int[Tensor, "rows produced"]


@dataclass(frozen=True, slots=True)
class Candidates:
    """Hypotheses by sentence, best first; a slot with log-probability -inf is empty.

    A hypothesis is its parent plus `token`. `row` is the row of the parent in the batch of the step at `length`.
    """

    score: Float[Tensor, "sentences slots"]
    log_prob: Float[Tensor, "sentences slots"]
    length: Int[Tensor, "sentences slots"]
    row: Int[Tensor, "sentences slots"]
    token: Int[Tensor, "sentences slots"]

    def keep(self, wanted: Bool[Tensor, "sentences slots"]) -> "Candidates":
        """Empty all slots except the wanted ones."""
        score = self.score.where(wanted, NEVER)
        return Candidates(score, self.log_prob.where(wanted, NEVER), self.length, self.row, self.token)

    def merge_by_score(self, more: "Candidates") -> "Candidates":
        """The best of both, in as many slots as `self` has; where scores are equal, those of `self` come first."""
        order = torch.cat([self.score, more.score], dim=1).sort(dim=1, descending=True, stable=True).indices
        return self._merge(more, order)

    def fill_up_with(self, more: "Candidates") -> "Candidates":
        """Put the others into empty slots only, whatever their scores."""
        empty = torch.cat([self.score, more.score], dim=1) == NEVER
        return self._merge(more, empty.to(torch.uint8).sort(dim=1, stable=True).indices)

    def _merge(self, more: "Candidates", order: Int[Tensor, "sentences both"]) -> "Candidates":
        order = order[:, : self.score.shape[1]]

        def pick(ours: Tensor, theirs: Tensor) -> Tensor:
            return torch.cat([ours, theirs], dim=1).gather(1, order)

        return Candidates(
            pick(self.score, more.score),
            pick(self.log_prob, more.log_prob),
            pick(self.length, more.length),
            pick(self.row, more.row),
            pick(self.token, more.token),
        )


def empty_candidates(sentences: int, slots: int, device: torch.device) -> Candidates:
    """The same number of empty slots for every sentence."""
    nothing = torch.full((sentences, slots), NEVER, device=device)
    zero = torch.zeros(sentences, slots, dtype=torch.long, device=device)
    return Candidates(nothing, nothing, zero, zero, zero)


@dataclass(frozen=True, slots=True)
class Backpointers:
    """Each step's tokens and the rows of their parents, so that no step copies the tokens before it."""

    parents: list[Int[Tensor, " rows"]] = field(default_factory=list)
    tokens: list[Int[Tensor, " rows"]] = field(default_factory=list)

    def append(self, parents: Int[Tensor, " rows"], tokens: Int[Tensor, " rows"]) -> None:
        """Add the rows of the next step."""
        self.parents.append(parents)
        self.tokens.append(tokens)

    def trace(self, ended: Candidates, eos: int) -> list[list[Hypothesis]]:
        """The hypotheses of these candidates with all their tokens."""
        parents = [rows.tolist() for rows in self.parents]
        tokens = [row_tokens.tolist() for row_tokens in self.tokens]

        def follow(score: float, log_prob: float, length: int, row: int, token: int) -> Hypothesis:
            backwards = [token]
            for position in reversed(range(length - 1)):
                backwards.append(tokens[position][row])
                row = parents[position][row]
            return Hypothesis(tuple(reversed(backwards)), log_prob, score, finished=token == eos)

        columns = (ended.score, ended.log_prob, ended.length, ended.row, ended.token)
        return [
            [follow(*slot) for slot in zip(*sentence, strict=True) if slot[0] > NEVER]
            for sentence in zip(*(column.tolist() for column in columns), strict=True)
        ]


@dataclass(frozen=True, slots=True)
class BeamStep:
    """What one step of the search looked at: all candidates, and those of them that stay in the beam."""

    found: Candidates
    survives: Bool[Tensor, "sentences candidates"]


def beam_search(
    step: StepFunction[S],
    state: S,
    special: SpecialTokens,
    max_lengths: Int[Tensor, " sentences"],
    config: SearchConfig,
    *,
    n_best: int = 1,
    prefixes: Sequence[Sequence[int]] = (),
    watch: Callable[[BeamStep], None] | None = None,
) -> list[list[Hypothesis]]:
    """The best hypotheses of each sentence, best first.

    `state` has one row per sentence, and `max_lengths` count EOS.

    At each step the best 2 x beam continuations of a sentence are candidates. Those that end go to a pool; the best
    `beam` of the others stay active. An active hypothesis can at best keep its log-probability up to the maximum
    length. Once its score would be too low for the pool even then, it is dropped: everything that could follow from it
    would rank below everything that is kept. So dropping never changes the result, and the pool needs only `n_best`
    slots. Hypotheses that are cut off at the maximum length count only where fewer than `n_best` have finished.

    With a beam of 1 there is one candidate, so this is greedy search: an EOS in second place is not taken. If there are
    `prefixes`, each output begins with its own. `watch` is called with every step, to draw the search.
    """
    check_search_options(config, n_best)
    device, sentences = max_lengths.device, len(max_lengths)
    rules = make_token_rules(special, config, device, prefixes)
    max_lengths = max_lengths.clamp(min=1)
    penalties = penalty_table(int(max_lengths.max()) if sentences else 0, config, device)
    largest = penalties[max_lengths]
    pool = cut_off = empty_candidates(sentences, n_best, device)
    backpointers = Backpointers()
    active = start_hypotheses(sentences, special, config.beam, device)
    length = 0
    while len(active.tokens):
        length += 1
        logits, state = step(active.tokens, state)
        best = rules.best(logits, length, active.history, active.slots // config.beam, count_candidates(config.beam))
        found = extend_hypotheses(active, *best, sentences, config.beam, length=length, penalty=penalties[length])

        ends = found.token == special.eos
        if ends.any():
            pool = pool.merge_by_score(found.keep(ends))
        survives = select_survivors(found, pool, ends, largest, config.beam)
        last = max_lengths <= length
        if last.any():
            cut_off = cut_off.merge_by_score(found.keep(survives & last.unsqueeze(1)))
            survives = survives & ~last.unsqueeze(1)
        if watch:
            watch(BeamStep(found, survives))

        parents, before = found.row[survives], active
        history = rules.extend_history(before.history, parents, found.token[survives])
        active = _activate(found, survives, config.beam, history)
        backpointers.append(parents, active.tokens)
        if len(parents):
            state = select_rows(state, parents, len(before.tokens))
    results = backpointers.trace(pool.fill_up_with(cut_off), special.eos)
    if not all(results):
        raise Diverged(NOT_FINITE)
    return results


def penalty_table(longest: int, config: SearchConfig, device: torch.device) -> Float[Tensor, " lengths"]:
    """The penalty of every length from 0 to `longest`, at its own index."""
    lengths = torch.arange(longest + 1, dtype=torch.float32, device=device)
    return length_penalty(lengths, config.alpha, config.penalty)


def start_hypotheses(sentences: int, special: SpecialTokens, beam: int, device: torch.device) -> ActiveHypotheses:
    """One empty hypothesis per sentence."""
    slots = torch.arange(sentences, device=device) * beam
    tokens = torch.full_like(slots, special.start)
    return ActiveHypotheses(slots, torch.zeros(sentences, device=device), tokens, tokens.new_empty(sentences, 0))


def count_candidates(beam: int) -> int:
    """The number of continuations to consider for each sentence: half of them may end it."""
    return 2 * beam if beam > 1 else 1


def extend_hypotheses(
    active: ActiveHypotheses,
    values: Float[Tensor, "rows each"],
    ids: Int[Tensor, "rows each"],
    sentences: int,
    beam: int,
    *,
    length: int,
    penalty: Float[Tensor, ""],
) -> Candidates:
    """The best continuations of each sentence, chosen from those of its rows; ties go by parent's rank, then by id."""
    count, each = count_candidates(beam), values.shape[1]
    # A slot without a row has no continuation, so sentences need not have equally many rows.
    totals = values.new_full((sentences * beam, each), NEVER)
    totals[active.slots] = values + active.log_probs.unsqueeze(1)
    best, order = totals.view(sentences, -1).sort(dim=1, descending=True, stable=True)
    best, order = best[:, :count], order[:, :count]

    rows = active.slots.new_zeros(sentences * beam)
    rows[active.slots] = torch.arange(len(active.slots), device=rows.device)
    row = rows.view(sentences, beam).gather(1, order // each)
    token = ids.flatten()[row * each + order % each]
    return Candidates(best / penalty, best, torch.full_like(row, length), row, token)


def select_survivors(
    found: Candidates,
    pool: Candidates,
    ends: Bool[Tensor, "sentences candidates"],
    largest: Float[Tensor, " sentences"],
    beam: int,
) -> Bool[Tensor, "sentences candidates"]:
    """Which of the best `beam` candidates that do not end could still win with the `largest` penalty."""
    bound = found.log_prob / largest.unsqueeze(1)
    unfinished = ~ends
    return unfinished & (unfinished.cumsum(dim=1) <= beam) & (bound > pool.score[:, -1:])


def _activate(
    found: Candidates,
    survives: Bool[Tensor, "sentences candidates"],
    beam: int,
    history: Int[Tensor, "rows produced"],
) -> ActiveHypotheses:
    """Number the survivors as rows, by sentence and then by rank."""
    ranks = survives.cumsum(dim=1) - 1
    sentence = torch.arange(len(ranks), device=ranks.device).unsqueeze(1)
    slots = (sentence * beam + ranks)[survives]
    return ActiveHypotheses(slots, found.log_prob[survives], found.token[survives], history)
