"""A task as a value: how to read its files, what a model sees of them, and how to finish and score outputs.

Users see a `Pair` in the task's own form: a word and its phonemes, a sentence and its tree. A model sees symbols with
spaces between them. `source_symbols` and `target_symbols` make the symbols, and `finish` turns outputs back.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Literal

from heedful.config.experiment import BleuTokens, DataConfig, Head, TokenizerKind
from heedful.data.pairs import Pair, check_readable, read_parallel, read_passages
from heedful.errors import ConfigError, DataError
from heedful.metrics import Score

FileLayout = Literal["two", "one", "either"]  # whether source and target are in two files, in one, or as the user likes
References = Sequence[Sequence[str]]  # `references[i]` are the correct answers to question i


@dataclass(frozen=True, slots=True)
class Question:
    """A source of a test set, and all correct answers."""

    source: str
    references: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ScoringOptions:
    """BLEU's tokenizer, the target language, and the number of resamples for an interval."""

    tokenize: BleuTokens = "13a"
    language: str = ""
    resamples: int = 1000


def _unchanged(text: str) -> str:
    return text


def _with_single_spaces(source: str, output: str) -> str:
    return " ".join(output.split())


def _one_question_a_pair(pairs: Iterable[Pair]) -> list[Question]:
    return [Question(pair.source, (pair.target,)) for pair in pairs]


def _read_passages(files: Sequence[str]) -> Iterator[Pair]:
    """Each passage twice, because spans are left out of it later, anew in each epoch."""
    for name in files:
        check_readable(Path(name))
    return (Pair(passage, passage) for name in files for passage in read_passages(Path(name)))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Task:
    """Everything that depends on the task of a model."""

    name: str
    read_file: Callable[[Path], Iterator[Pair]]  # a file that contains both sides
    score: Callable[[Sequence[str], References, ScoringOptions], list[Score]]  # finished outputs against references
    quick_score: Callable[[Sequence[str], References, BleuTokens], Score]  # for validation: 100 is perfect
    quick_metric: str  # the name of the quick score
    source_symbols: Callable[[str], str] = _unchanged  # what users write -> what the model reads
    target_symbols: Callable[[str], str] = _unchanged  # a correct answer -> what the model should write
    finish: Callable[[str, str], str] = _with_single_spaces  # (source, what the model wrote) -> what users read
    make_questions: Callable[[Iterable[Pair]], list[Question]] = _one_question_a_pair  # a test set out of pairs
    source_tokenizer: TokenizerKind | None = None  # None: the kind in `text.kind`
    target_tokenizer: TokenizerKind | None = None
    defaults: Mapping[str, Mapping[str, object]] = field(default_factory=dict)  # keys of a recipe
    files: FileLayout = "either"
    pipeline_tag: str = "text2text-generation"  # the model card's name for the task
    translates: bool = False  # from one language to another: such models can be served, and compared by BLEU
    repeats_by_mistake: bool = False  # a looping output is a failure, so it is decoded again
    aligns_words: bool = True  # each symbol of an output comes from some symbol of the source
    writes_trees: bool = False  # outputs are trees in Penn brackets, which can be drawn
    continues_text: bool = False  # files are plain text, read as one stream of tokens and not as pairs
    encoder: Head | None = None  # what an encoder alone is asked about; None: the model writes text
    reads_pictures: bool = False  # files are pictures in folders of classes, and not pairs
    matches_pictures: bool = False  # files are pictures with captions, and the model writes no text
    denoises: bool = False  # files are plain text, and the model restores spans that are left out of its passages
    searches_trees: bool = False  # the search allows only matching brackets around the words of the source

    @property
    def writes_text(self) -> bool:
        """Whether the model writes text token by token, and does not only answer about what it reads."""
        return self.encoder is None and not self.matches_pictures

    @property
    def reads_stream(self) -> bool:
        """Whether it learns from plain text as one stream of tokens, and not from pairs."""
        return self.continues_text or self.encoder == "masked"

    def read_pairs(self, data: DataConfig) -> Iterator[Pair]:
        """All training pairs: `data.source` with `data.target`, file by file, then `data.tsv`.

        Missing files are reported before the first pair is read; mistakes inside a file, when they are reached.
        """
        if self.denoises:
            return _read_passages(data.text)
        if not data.source and not data.tsv:
            raise DataError("the recipe names no training text; set data.source and data.target, or data.tsv")
        return self.read_files(data.source, data.target, data.tsv)

    def read_validation(self, data: DataConfig) -> Iterator[Pair]:
        """All pairs of `data.valid_source` and `data.valid_target`."""
        if self.denoises:
            return _read_passages(data.valid_text)
        return self.read_files(data.valid_source, data.valid_target)

    def read_files(self, sources: Sequence[str], targets: Sequence[str], tables: Sequence[str] = ()) -> Iterator[Pair]:
        """The pairs of parallel files, then of tables. Sources without targets contain both sides, as tables do."""
        if targets and self.files == "one":
            raise ConfigError(
                f"files for {self.name} contain both sides, so {targets[0]} has no use; leave out the target files"
            )
        if sources and not targets and self.files == "two":
            raise ConfigError(f"{sources[0]} contains only one side; give the file with its {self.name} too")
        both_sides = tables if targets else (*sources, *tables)
        for name in both_sides:
            check_readable(Path(name))
        parallel = read_parallel(sources, targets) if targets else iter(())
        return chain(parallel, *(self.read_file(Path(name)) for name in both_sides))

    def read_questions(self, sources: Sequence[str], references: Sequence[Sequence[str]]) -> list[Question]:
        """A test set: sources with one or more sets of reference files, or files that contain both sides."""
        if not references:
            return self.make_questions(self.read_files(sources, ()))
        first, *others = [list(self.read_files(sources, files)) for files in references]
        if not others:
            return self.make_questions(first)
        several = zip(first, *others, strict=True)  # each has as many lines as the sources
        return [Question(pairs[0].source, tuple(pair.target for pair in pairs)) for pairs in several]

    def symbols(self, pair: Pair) -> Pair:
        """The pair as symbols, which the model learns."""
        return Pair(self.source_symbols(pair.source), self.target_symbols(pair.target))

    def tokenizer_kinds(self, wanted: TokenizerKind) -> tuple[TokenizerKind, TokenizerKind]:
        """The kinds of the source and the target tokenizer if `text.kind` is `wanted`."""
        return self.source_tokenizer or wanted, self.target_tokenizer or wanted
