"""Measure what each head of a model does over a corpus, and how much it matters."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from heedful.attention.forced_decoding import force_decode
from heedful.attention.head_names import Head, all_heads
from heedful.attention.importance import ablate_heads
from heedful.attention.measures import HeadMeasures, HeadStatistics, find_rare_pieces, mark_pieces
from heedful.attention.roles import Role, name_roles
from heedful.data.pairs import Pair
from heedful.data.stream import batches_by_length
from heedful.errors import ConfigError, DataError
from heedful.inspection.attention_view import AttentionViewer
from heedful.inspection.prune import paired_batches
from heedful.progress import Reporter
from heedful.storage.run_folder import RunFolder
from heedful.translation.translator import MAX_INSPECTED_PIECES

Ids = Sequence[int]


@dataclass(frozen=True, slots=True)
class HeadSurvey:
    """Measurements of all heads."""

    measures: Mapping[Head, HeadMeasures]
    roles: Mapping[Head, Role]
    left_out: int  # number of lines that are empty or too long

    def known_roles(self) -> dict[str, object]:
        """The role of each head, as the run folder stores it for the page."""
        return {str(head): asdict(role) for head, role in self.roles.items()}


def survey_heads(lens: AttentionViewer, lines: Sequence[str], report: Reporter) -> HeadSurvey:
    """Translate the lines and measure what every head attends to."""
    translator = lens.translator
    if not translator.model.attentions:
        raise ConfigError(f"{lens.run} holds a model without attention, so there are no heads to measure")
    encoded = translator.encode([line for line in lines if line.strip()])
    encoded = [ids for ids in encoded if len(ids) <= MAX_INSPECTED_PIECES]
    if not encoded:
        raise DataError(
            f"none of {len(lines)} lines has text of at most {MAX_INSPECTED_PIECES} pieces; give other text"
        )
    outputs = _translated(lens, encoded, report)
    tally = _measured(lens, encoded, outputs, report)
    measures = tally.measures()
    return HeadSurvey(measures, name_roles(measures), len(lines) - len(encoded))


def _translated(lens: AttentionViewer, sources: Sequence[Ids], report: Reporter) -> list[Ids]:
    found: dict[int, Ids] = {}
    for batch in batches_by_length(range(len(sources)), sources, lens.search.beam, lens.translator.engine.batch_tokens):
        hypotheses = lens.translator.decode([sources[i] for i in batch], lens.search, 1)
        found |= {i: best[0].tokens for i, best in zip(batch, hypotheses, strict=True)}
        report.progress("translating", len(found), len(sources))
    return [found[i] for i in range(len(sources))]


def _measured(
    lens: AttentionViewer, sources: Sequence[Ids], targets: Sequence[Ids], report: Reporter
) -> HeadStatistics:
    tokenizers, tally, done = lens.translator.tokenizers, HeadStatistics(), 0
    source_pieces = [tokenizers.source.pieces(ids) for ids in sources]
    target_pieces = [tokenizers.target.pieces(ids) for ids in targets]
    rare_source, rare_target = find_rare_pieces(source_pieces), find_rare_pieces(target_pieces)
    longest = [max(source, target, key=len) for source, target in zip(sources, targets, strict=True)]
    for batch in batches_by_length(range(len(sources)), longest, 1, lens.translator.engine.batch_tokens):
        views = force_decode(lens.translator.model, [sources[i] for i in batch], [targets[i] for i in batch])
        for i, view in zip(batch, views, strict=True):
            tally.add(
                view.attention, mark_pieces(source_pieces[i], rare_source), mark_pieces(target_pieces[i], rare_target)
            )
        done += len(batch)
        report.progress("measuring heads", done, len(sources))
    return tally


def measure_importance(lens: AttentionViewer, pairs: Sequence[Pair], report: Reporter) -> dict[Head, float]:
    """The increase in loss on these pairs when each head is switched off."""
    model, batches = lens.translator.model, paired_batches(RunFolder(lens.run), lens.translator, pairs)
    return ablate_heads(
        model, batches, all_heads(model), lambda count, total: report.progress("switching off heads", count, total)
    )
