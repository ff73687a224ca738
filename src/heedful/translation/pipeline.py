"""From texts to translations: split, encode, group, decode, retry failures, restore the order, join."""

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import accumulate, chain, islice, starmap
from typing import TYPE_CHECKING

from heedful.config import SearchConfig
from heedful.data.stream import TextStream, batches_by_length, map_in_threads, read_windows
from heedful.decoding.engine import Engine, Ids
from heedful.decoding.hypothesis import Hypothesis
from heedful.decoding.token_constraints import NO_BOUNDARIES, Phrase, TokenConstraints, TreeLeaves, WordBoundaries
from heedful.errors import DataError
from heedful.metrics.alignment import Link
from heedful.storage.run_folder import Tokenizers
from heedful.tasks import Task
from heedful.text import Tokenizer
from heedful.text.constraints import Constraints, Term, encode_term, find_missing, find_word_boundaries
from heedful.text.sentences import Sentences
from heedful.text.trees import CLOSE, OPEN, is_label
from heedful.text.verbatim import MaskedText, find_verbatim, is_kept, mask_verbatim
from heedful.translation.engines import Engines
from heedful.translation.result import (
    Alternative,
    Translation,
    WordConfidence,
    join_sentences,
    measure_word_confidence,
)

if TYPE_CHECKING:  # translating without alignments does not wait for PyTorch
    from heedful.attention.aligner import Aligner

_MAX_PIECES = 8192  # of one text; attention needs memory for their square
_MIN_CAPITALS = 4  # letters; a shorter text in capitals is more often an abbreviation than a shout
_RETRY_NGRAM = 3  # n-grams that may not repeat when a failed text is decoded again


@dataclass(frozen=True, slots=True)
class TranslationOptions:
    """How to translate the texts of one call."""

    search: SearchConfig
    n_best: int
    encoder: "ConstraintEncoder"
    aligner: "Aligner | None" = None  # None: words are not aligned
    confidence: bool = False
    workers: int = 0  # threads that may decode at the same time; 0: as many as the engine supports
    split_sentences: bool = False  # and keep addresses and the like; False: decode each text as it is

    @property
    def rows(self) -> int:
        """The number of hypotheses of a text that are decoded together."""
        return {"beam": self.search.beam, "sample": self.n_best, "mbr": self.search.samples}[self.search.method]

    @property
    def for_retry(self) -> "TranslationOptions":
        """The same, without repeated n-grams."""
        return replace(self, search=replace(self.search, no_repeat_ngram=_RETRY_NGRAM))


@dataclass(frozen=True, slots=True)
class TokenizedText:
    """A text and its source ids."""

    text: str
    source: list[int]
    terms: tuple[Term, ...] | None = None  # that its translation must contain; None: those of the glossary for the text


@dataclass(frozen=True, slots=True)
class _Unit:
    """A sentence or a whole text, and what is decoded in its place: itself, or its usual forms if it is in capitals."""

    forms: "tuple[str | TokenizedText, ...]"
    in_capitals: str = ""  # as it was written

    def choose(self, translations: Iterator[Translation]) -> Translation:
        """The translation that the model is most confident of; takes those of the forms from the iterator."""
        found = max(islice(translations, len(self.forms)), key=lambda one: one.mean_probability)
        return found.in_capitals(self.in_capitals) if self.in_capitals else found


@dataclass(frozen=True, slots=True)
class _SplitText:
    """A text, and the units that are decoded: its sentences, or the whole text."""

    units: Sequence[_Unit]
    sentences: Sentences | None = None  # None: the text itself is the only unit

    @property
    def forms(self) -> "list[str | TokenizedText]":
        """All that is decoded, in the order of the units."""
        return [form for unit in self.units for form in unit.forms]

    def join(self, translations: Iterator[Translation], language: str) -> Translation:
        """The translation of the text; takes those of its units from the iterator."""
        parts = [unit.choose(translations) for unit in self.units]
        return join_sentences(self.sentences, parts, language) if self.sentences else parts[0]


@dataclass(frozen=True, slots=True)
class EncodedText:
    """A text as the engines take it."""

    text: str
    source: Ids
    constraints: TokenConstraints
    terms: tuple[Term, ...] = ()  # that its translation should contain

    @property
    def without_terms(self) -> "EncodedText":
        """The same text, for a translation that need not contain its terms."""
        return replace(self, constraints=replace(self.constraints, phrases=())) if self.terms else self

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to translate. An imported tokenizer may reduce a text to its EOS."""
        return not self.text.strip() or len(self.source) <= 1


@dataclass(frozen=True, slots=True)
class DecodedText:
    """The hypotheses of one text, best first, with their alignments and confidence if they were requested."""

    hypotheses: Sequence[Hypothesis]
    alignments: Sequence[tuple[Link, ...]] | None = None
    confidence: Sequence[tuple[WordConfidence, ...]] | None = None
    redone: bool = False  # whether this is the result of a retry
    failed: tuple[Term, ...] = ()  # terms that were given up
    mask: MaskedText | None = None  # what was decoded instead of the text, because the first output lost parts of it


@dataclass(frozen=True, slots=True)
class _Progress:
    """Turns the number of decoded units of a window into the number of texts, and passes it on."""

    done: Callable[[int], None]
    before: int  # texts in earlier windows
    texts: int
    units: int

    def __call__(self, decoded: int) -> None:
        self.done(self.before + self.texts * decoded // self.units)


class Pipeline:
    """Translates streams of texts in bounded memory; start reading at `translate`."""

    def __init__(
        self, engines: Engines, tokenizers: Tokenizers, task: Task, languages: tuple[str, str] = ("", "")
    ) -> None:
        self.engines = engines
        self._tokenizers = tokenizers
        self._task = task
        self._source_language, self._target_language = languages

    def translate(
        self,
        texts: Iterable[str | TokenizedText] | TextStream,
        options: TranslationOptions,
        done: Callable[[int], None],
    ) -> Iterator[Translation]:
        """Each translation in the order of the texts, as soon as it is ready; `done` gets the number decoded."""
        before = 0
        for window in read_windows(texts):
            split = [self._split(text, options) for text in window]
            units = [form for text in split for form in text.forms]
            starts = set(accumulate((len(text.forms) for text in split), initial=0))
            encoded = self.encode(units, options, before + 1, starts)
            translations = self._translate_units(encoded, options, _Progress(done, before, len(window), len(units)))
            for text in split:
                yield text.join(translations, self._target_language)
            before += len(window)

    def _split(self, text: str | TokenizedText, options: TranslationOptions) -> _SplitText:
        if not options.split_sentences or not self._task.translates:
            return _SplitText([_Unit((text,))])
        if isinstance(text, TokenizedText):  # a sentence already
            return _SplitText([_Unit((text,)) if text.terms else self._make_unit(text.text, text, options)])
        sentences = Sentences(text, self._source_language)
        if sentences.is_whole or not text.strip():
            return _SplitText([self._make_unit(text, text, options)])
        return _SplitText([self._make_unit(sentence, sentence, options) for sentence in sentences.texts], sentences)

    def _make_unit(self, text: str, itself: str | TokenizedText, options: TranslationOptions) -> _Unit:
        """The sentence itself, or one in capitals as people usually write it, if the model knows that better.

        The vocabulary shows what a model knows: it has longer pieces for what its text had more often. If both take as
        many pieces, but fewer than letters, the usual forms are chosen, because most text is written so.
        """
        if not text.isupper() or sum(map(str.isalpha, text)) < _MIN_CAPITALS or options.encoder.constrains(text):
            return _Unit((itself,))
        lower = text.lower()
        first = next(place for place, character in enumerate(lower) if character.isalpha())
        sentence = lower[:first] + lower[first].upper() + lower[first + 1 :]
        pieces, *usual = map(len, self._tokenizers.source.encode_all([text, sentence, lower]))
        known = [
            form
            for form, own in zip((sentence, lower), usual, strict=True)
            if own < pieces or own == pieces < len(text)
        ]
        return _Unit(tuple(known), text) if known else _Unit((itself,))

    def _translate_units(
        self, encoded: Sequence[EncodedText], options: TranslationOptions, done: Callable[[int], None]
    ) -> Iterator[Translation]:
        """Each unit in order, as soon as it is ready."""
        decoded: dict[int, DecodedText] = {}
        position = 0  # the next translation to return
        for batch in self._decode(encoded, options):
            decoded |= batch
            done(position + len(decoded))
            while position in decoded:
                yield self.finish(encoded[position], decoded.pop(position), options.search)
                position += 1

    def tokenize(self, texts: Sequence[str | TokenizedText]) -> list[TokenizedText]:
        """The source ids of each text; a text that is tokenized already is returned as it is."""
        new = [self._task.source_symbols(text) for text in texts if isinstance(text, str)]
        sources = iter(self._tokenizers.source.encode_all(new))
        return [TokenizedText(text, next(sources)) if isinstance(text, str) else text for text in texts]

    def encode(
        self,
        texts: Sequence[str | TokenizedText],
        options: TranslationOptions,
        first: int = 1,
        starts: Container[int] | None = None,
    ) -> list[EncodedText]:
        """The ids and constraints of each text; `first` is the number of the first text, for error messages.

        `starts` are the positions of the units that begin a text, and so get the prefix; None: all do.
        """
        tokenized = self.tokenize(texts)
        for number, text in enumerate(tokenized, first):
            if (pieces := len(text.source)) > _MAX_PIECES:
                raise DataError(f"text {number} has {pieces} pieces, over {_MAX_PIECES}; split it into sentences")
        return [
            self._encode_text(text, options, prefix=starts is None or position in starts)
            for position, text in enumerate(tokenized)
        ]

    def _encode_text(self, text: TokenizedText, options: TranslationOptions, *, prefix: bool) -> EncodedText:
        terms = tuple(options.encoder.find_terms(text.text)) if text.terms is None else text.terms
        return EncodedText(text.text, text.source, options.encoder.encode(text.text, terms, prefix=prefix), terms)

    def _decode(self, encoded: Sequence[EncodedText], options: TranslationOptions) -> Iterator[dict[int, DecodedText]]:
        """All texts by number: first as if there were no terms, then again where terms are missing."""
        free = [text.without_terms for text in encoded]
        lacking: dict[int, DecodedText] = {}
        for batch in self._decode_all(free, options):
            lacking |= {
                number: found
                for number, found in batch.items()
                if any(self._find_missing(found, encoded[number].terms, rank) for rank in range(len(found.hypotheses)))
            }
            yield {number: found for number, found in batch.items() if number not in lacking}
        numbers = list(lacking)
        failed: dict[int, DecodedText] = {}
        for batch in self._decode_all([encoded[number] for number in numbers], options):
            found = {numbers[place]: decoded for place, decoded in batch.items()}
            failed |= {
                number: lacking[number]
                for number, decoded in found.items()
                if _is_damaged(encoded[number], lacking[number], decoded, options.encoder.max_loss)
            }
            yield {number: decoded for number, decoded in found.items() if number not in failed}
        yield from self._give_up_terms(encoded, failed, options)

    def _give_up_terms(
        self, encoded: Sequence[EncodedText], free: Mapping[int, DecodedText], options: TranslationOptions
    ) -> Iterator[dict[int, DecodedText]]:
        """The translations of these texts without their terms, except for names, and what they lack."""
        named = {number: _keep_names(encoded[number], options.encoder) for number in free}
        again = [number for number, text in named.items() if self._find_missing(free[number], text.terms)]
        yield {
            number: self._name_failed(found, encoded[number]) for number, found in free.items() if number not in again
        }
        for batch in self._decode_all([named[number] for number in again], options):
            yield {again[place]: self._name_failed(found, encoded[again[place]]) for place, found in batch.items()}

    def _name_failed(self, decoded: DecodedText, text: EncodedText) -> DecodedText:
        return replace(decoded, failed=tuple(self._find_missing(decoded, text.terms)))

    def _find_missing(self, decoded: DecodedText, terms: Sequence[Term], rank: int = 0) -> list[Term]:
        """The terms that an output lacks."""
        return find_missing(self._tokenizers.target.decode(decoded.hypotheses[rank].tokens), terms) if terms else []

    def _decode_all(
        self, encoded: Sequence[EncodedText], options: TranslationOptions
    ) -> Iterator[dict[int, DecodedText]]:
        """All texts by number, batch by batch, in the order in which the batches are ready.

        Failures are decoded again at the end, in batches: one by one, they would take longer.
        """
        yield {number: DecodedText(()) for number, text in enumerate(encoded) if text.is_empty}
        failed: dict[int, DecodedText] = {}
        lossy: dict[int, MaskedText] = {}
        for batch in self._decode_once(
            encoded, [number for number, text in enumerate(encoded) if not text.is_empty], options
        ):
            masks = {number: self._mask(encoded[number], found, options) for number, found in batch.items()}
            lossy |= {number: mask for number, mask in masks.items() if mask}
            failed |= {
                number: found
                for number, found in batch.items()
                if number not in lossy and self._fails(encoded[number], found, options)
            }
            yield {number: found for number, found in batch.items() if number not in failed and number not in lossy}
        for batch in self._decode_once(encoded, list(failed), options.for_retry):
            yield {
                number: self._choose_better(encoded[number], failed[number], second, options)
                for number, second in batch.items()
            }
        yield from self._decode_masked(encoded, lossy, options)

    def _mask(self, text: EncodedText, decoded: DecodedText, options: TranslationOptions) -> MaskedText | None:
        """The text with names in the place of addresses and the like, if its translation has lost some of them."""
        if not options.split_sentences or not self._task.translates or not find_verbatim(text.text):
            return None
        output = self._tokenizers.target.decode(decoded.hypotheses[0].tokens)
        return None if is_kept(text.text, output) else mask_verbatim(text.text)

    def _decode_masked(
        self, encoded: Sequence[EncodedText], masks: Mapping[int, MaskedText], options: TranslationOptions
    ) -> Iterator[dict[int, DecodedText]]:
        """The masked texts, by the numbers of the texts."""
        numbers = list(masks)
        sources = self.tokenize([masks[number].text for number in numbers])
        masked = [
            replace(encoded[number], text=text.text, source=text.source)
            for number, text in zip(numbers, sources, strict=True)
        ]
        for batch in self._decode_once(masked, range(len(numbers)), options):
            yield {numbers[place]: replace(found, mask=masks[numbers[place]]) for place, found in batch.items()}

    def _decode_once(
        self, encoded: Sequence[EncodedText], numbers: Sequence[int], options: TranslationOptions
    ) -> Iterator[dict[int, DecodedText]]:
        """Group these texts by engine and then by length, and decode several batches at once if the engine can."""
        limitations = {
            number: self.engines.find_limitation(
                options.search, encoded[number].constraints, len(encoded[number].source)
            )
            for number in numbers
        }
        for engine, share in self.engines.assign(limitations):
            sources = [text.source for text in encoded]
            most = options.workers or engine.workers
            batches = list(batches_by_length(share, sources, options.rows, engine.batch_tokens, most))
            workers = min(most, len(batches))
            with engine.share_threads(workers):
                yield from map_in_threads(partial(self._decode_batch, engine, encoded, options), batches, workers)

    def _decode_batch(
        self, engine: Engine, encoded: Sequence[EncodedText], options: TranslationOptions, numbers: Sequence[int]
    ) -> dict[int, DecodedText]:
        """Decode these texts together, and add alignments and confidence if they are requested."""
        batch = [encoded[number] for number in numbers]
        hypotheses = engine.decode(
            [text.source for text in batch],
            options.search,
            options.n_best,
            [text.constraints for text in batch],
            options.encoder.boundaries,
        )
        if options.search.method == "mbr":
            hypotheses = [
                self._choose_by_agreement(text, samples, options.n_best)
                for text, samples in zip(batch, hypotheses, strict=True)
            ]
        alignments = self._align(options.aligner, batch, hypotheses) if options.aligner else [None] * len(batch)
        confidence = self._measure_confidence(engine, batch, hypotheses) if options.confidence else [None] * len(batch)
        return {
            number: DecodedText(own, links, words)
            for number, own, links, words in zip(numbers, hypotheses, alignments, confidence, strict=True)
        }

    def decode_for_inspection(self, text: EncodedText, options: TranslationOptions) -> DecodedText:
        """Decode one text with the engine whose model can be inspected."""
        free = self._decode_alone(text.without_terms, options)
        if not self._find_missing(free, text.terms):
            return free
        held = self._decode_alone(text, options)
        if not _is_damaged(text, free, held, options.encoder.max_loss):
            return held
        named = _keep_names(text, options.encoder)
        return self._decode_alone(named, options) if self._find_missing(free, named.terms) else free

    def _decode_alone(self, text: EncodedText, options: TranslationOptions) -> DecodedText:
        first = self._decode_batch(self.engines.torch, [text], options, [0])[0]
        if not self._fails(text, first, options):
            return first
        second = self._decode_batch(self.engines.torch, [text], options.for_retry, [0])[0]
        return self._choose_better(text, first, second, options)

    def _fails(self, text: EncodedText, decoded: DecodedText, options: TranslationOptions) -> bool:
        """Whether the best output loops or does not end, so that a retry is due."""
        search = options.search
        guarded = search.guard and search.method == "beam" and self._task.repeats_by_mistake
        if not guarded or 0 < search.no_repeat_ngram <= _RETRY_NGRAM:
            return False
        best = decoded.hypotheses[0]
        return not best.finished or (has_loop(best.tokens) and not has_loop(text.source))

    def _choose_better(
        self, text: EncodedText, first: DecodedText, second: DecodedText, options: TranslationOptions
    ) -> DecodedText:
        """The second result, unless it fails too."""
        return first if self._fails(text, second, options) else replace(second, redone=True)

    def _choose_by_agreement(self, text: EncodedText, samples: Sequence[Hypothesis], n_best: int) -> list[Hypothesis]:
        """The samples that agree most with all others (minimum Bayes risk), without duplicates."""
        from heedful.metrics.chrf import score_agreement

        decoded = self._tokenizers.target.decode_all([sample.tokens for sample in samples])
        outputs = [self._task.finish(text.text, output) for output in decoded]
        scored = {o: replace(h, score=s) for o, h, s in zip(outputs, samples, score_agreement(outputs), strict=True)}
        return sorted(scored.values(), key=lambda hypothesis: -hypothesis.score)[:n_best]

    def _align(
        self, aligner: "Aligner", batch: Sequence[EncodedText], hypotheses: Sequence[Sequence[Hypothesis]]
    ) -> list[list[tuple[Link, ...]]]:
        """The word alignment of every hypothesis of each text."""
        from heedful.attention.aligner import align_words, make_word_pair

        source, target = self._tokenizers.source, self._tokenizers.target
        pairs = [
            make_word_pair(source, target, self._task.source_symbols(text.text), hypothesis.tokens)
            for text, several in zip(batch, hypotheses, strict=True)
            for hypothesis in several
        ]
        links = iter(align_words(self.engines.torch.model, aligner, pairs))
        return [list(islice(links, len(several))) for several in hypotheses]

    def _measure_confidence(
        self, engine: Engine, batch: Sequence[EncodedText], hypotheses: Sequence[Sequence[Hypothesis]]
    ) -> list[list[tuple[WordConfidence, ...]]]:
        """The confidence in the words of every hypothesis of each text."""
        pairs = [(text.source, h.tokens) for text, several in zip(batch, hypotheses, strict=True) for h in several]
        log_probs = engine.score([source for source, _ in pairs], [tokens for _, tokens in pairs])
        words = (
            measure_word_confidence(self._tokenizers.target, tokens, own)
            for (_, tokens), own in zip(pairs, log_probs, strict=True)
        )
        return [list(islice(words, len(several))) for several in hypotheses]

    def finish(self, text: EncodedText, decoded: DecodedText, search: SearchConfig) -> Translation:
        """The translation as text; an empty line stays empty."""
        may_repeat = not self._task.repeats_by_mistake or has_loop(text.source)
        target, nothing = self._tokenizers.target, [None] * len(decoded.hypotheses)
        alternatives = tuple(
            Alternative(
                text=self._task.finish(text.text, target.decode(hypothesis.tokens)),
                score=hypothesis.score,
                log_prob=hypothesis.log_prob,
                pieces=tuple(target.pieces(hypothesis.tokens)),
                finished=hypothesis.finished,
                alignment=alignment,
                repeats=not may_repeat and has_loop(hypothesis.tokens),
                confidence=confidence,
                low_confidence=search.low_confidence,
            )
            for hypothesis, alignment, confidence in zip(
                decoded.hypotheses, decoded.alignments or nothing, decoded.confidence or nothing, strict=True
            )
        )
        pieces = tuple(self._tokenizers.source.pieces(text.source))
        if not alternatives:
            return Translation(text.text, "", 0.0, pieces, ())
        if decoded.mask:
            alternatives = tuple(_restore(alternative, decoded.mask) for alternative in alternatives)
        best = alternatives[0]
        failed = tuple(dict.fromkeys(map(str, decoded.failed)))
        return Translation(text.text, best.text, best.score, pieces, alternatives, decoded.redone, failed_terms=failed)


def _is_damaged(text: EncodedText, free: DecodedText, constrained: DecodedText, max_loss: float) -> bool:
    """Whether terms other than names make the pieces of an output so much less likely, on average."""
    likely, held = free.hypotheses[0], constrained.hypotheses[0]
    loss = likely.log_prob / len(likely.tokens) - held.log_prob / len(held.tokens)
    return loss > max_loss and not all(term.is_name for term in text.terms)


def _keep_names(text: EncodedText, encoder: "ConstraintEncoder") -> EncodedText:
    """The text, for a translation that must only contain its names."""
    names = tuple(term for term in text.terms if term.is_name)
    return replace(text, terms=names, constraints=replace(text.constraints, phrases=encoder.encode_terms(names)))


def _restore(alternative: Alternative, mask: MaskedText) -> Alternative:
    """The translation of a masked text with its parts put back; its pieces stay those that the model wrote."""
    alignment = alternative.alignment
    return replace(
        alternative,
        text=mask.restore(alternative.text),
        confidence=alternative.confidence
        and tuple(replace(word, word=mask.put_back(word.word)) for word in alternative.confidence),
        alignment=None if alignment is None else mask.restore_links(alignment, alternative.text),
    )


_MAX_PERIOD = 16  # tokens in the repeated part of a loop
_MIN_REPEATS = 4
_MIN_TOKENS = 8  # in all repeats together


def has_loop(tokens: Sequence[int]) -> bool:
    """Whether some tokens repeat many times in a row; three times, as in "very very very", is not enough."""
    if len(tokens) - len(set(tokens)) < _MIN_TOKENS - _MIN_TOKENS // _MIN_REPEATS:  # too few tokens occur twice
        return False
    for period in range(1, min(_MAX_PERIOD, len(tokens) // _MIN_REPEATS) + 1):
        run = period  # the length of the stretch in which each token equals the one `period` before it
        for now, before in zip(tokens[period:], tokens, strict=False):
            run = run + 1 if now == before else period
            if run >= max(_MIN_REPEATS * period, _MIN_TOKENS):
                return True
    return False


class ConstraintEncoder:
    """Encodes constraints with the target tokenizer; each term is encoded once."""

    def __init__(
        self, tokenizer: Tokenizer, constraints: Constraints, trees: "TreeConstraintEncoder | None" = None
    ) -> None:
        """With `trees`, outputs must be trees over the words of their text."""
        self._constraints = constraints
        self._trees = trees
        self._prefix = tuple(tokenizer.encode(constraints.prefix)[:-1]) if constraints.prefix else ()
        self._tokenizer = tokenizer
        # Encode all of them now, so that an impossible term is refused before any work is done.
        self._phrases = {term: self._encode_phrase(term) for term in starmap(Term, constraints.glossary.items())}
        self.max_loss = constraints.max_loss
        self.find_terms = constraints.find_terms

    def encode(self, text: str, terms: Sequence[Term], *, prefix: bool = True) -> TokenConstraints:
        """The constraints on the translation of a text; `prefix` says whether it has to begin with the prefix."""
        leaves = self._trees.encode(text.split()) if self._trees else None
        return TokenConstraints(self._prefix if prefix else (), self.encode_terms(terms), leaves)

    def constrains(self, text: str) -> bool:
        """Whether the translation of this text has to have a prefix or terms."""
        return bool(self._prefix or self._constraints.find_terms(text))

    def encode_terms(self, terms: Sequence[Term]) -> tuple[Phrase, ...]:
        """The phrases for terms of the glossary."""
        return tuple(self._phrases[term] for term in terms)

    @cached_property
    def boundaries(self) -> WordBoundaries:
        """Where words begin and end; only terms need this."""
        return WordBoundaries(*find_word_boundaries(self._tokenizer)) if self._phrases else NO_BOUNDARIES

    def _encode_phrase(self, term: Term) -> Phrase:
        ids = encode_term(self._tokenizer, term.target)
        return Phrase(ids.spaced, ids.close, ids.capital, term.inflects)


class TreeConstraintEncoder:
    """Encodes the words and brackets of outputs that must be trees."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        pieces = tokenizer.pieces(range(tokenizer.vocabulary_size))
        opens, closes = (_find_labels(pieces, mark) for mark in (OPEN, CLOSE))
        self._brackets = {opens[label]: closes[label] for label in opens if label in closes}

    def encode(self, words: Sequence[str]) -> TreeLeaves | None:
        """The leaves of any tree over these words; None if the tokenizer cannot tell them from brackets."""
        ids = [piece[:-1] for piece in self._tokenizer.encode_all(list(words))]
        first = {own[0] for own in ids if own}
        if not self._brackets or not all(ids) or first & {*self._brackets, *self._brackets.values()}:
            return None
        starts = accumulate(map(len, ids), initial=0)
        return TreeLeaves(tuple(chain.from_iterable(ids)), frozenset(starts), self._brackets)


def _find_labels(pieces: Sequence[str], mark: str) -> dict[str, int]:
    """The labels that follow this mark in the vocabulary, and the id of each such piece."""
    begin = f"▁{mark}"
    found = {piece.removeprefix(begin): number for number, piece in enumerate(pieces) if piece.startswith(begin)}
    return {label: number for label, number in found.items() if is_label(label)}
