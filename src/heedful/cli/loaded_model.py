"""What `heedful translate` translates with: a model, or two that translate through English."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from heedful.cli import console
from heedful.cli.common import load_translator, parse_device, parse_engine
from heedful.errors import ConfigError

if TYPE_CHECKING:
    from heedful.config import SearchConfig
    from heedful.progress import Reporter
    from heedful.storage.run_folder import RunFolder
    from heedful.translation.pivot import PivotTranslator
    from heedful.translation.result import Translation
    from heedful.translation.translator import Translator


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model and its folder, or two of each."""

    runs: "tuple[RunFolder, ...]"
    translator: "Translator | PivotTranslator"

    @property
    def languages(self) -> tuple[str, str]:
        """The codes of source and target."""
        return self.runs[0].experiment().data.source_language, self.runs[-1].experiment().data.target_language

    @property
    def search(self) -> "SearchConfig":
        """The search that options change."""
        return self.translator.search

    def can_align(self) -> bool:
        """Whether words can be aligned."""
        from heedful.translation.word_alignment import can_align

        return all(can_align(translator) for translator in self._translators)

    def translate_with(self, report: "Reporter", *, align: bool) -> "Callable[..., Iterator[Translation]]":
        """The function `translate_lines`, with word alignments if they are wanted."""
        from heedful.translation.pivot import PivotAligners, PivotTranslator

        if not align:
            return self.translator.translate_lines
        from heedful.translation.word_alignment import find_aligner

        pairs = zip(self.runs, self._translators, strict=True)
        aligners = [find_aligner(run, translator, report) for run, translator in pairs]
        if isinstance(self.translator, PivotTranslator):
            return partial(self.translator.translate_lines, aligner=PivotAligners(*aligners))
        return partial(self.translator.translate_lines, aligner=aligners[0])

    @property
    def _translators(self) -> "tuple[Translator, ...]":
        from heedful.translation.pivot import PivotTranslator

        own = self.translator
        return (own.first, own.second) if isinstance(own, PivotTranslator) else (own,)


def load_model(folders: Sequence[Path], device: str, engine: str, others: Sequence[Path] | None) -> LoadedModel:
    """Load a model, with `others` as an ensemble; or two that translate one after the other."""
    from heedful.storage.run_folder import RunFolder

    first, *rest = map(RunFolder.open, folders)
    if not rest:
        return LoadedModel((first,), load_translator(first, device, engine, others))
    (second,) = rest
    if others:
        raise ConfigError(
            f"--with {others[0]} adds to one model, but {first.path.name} and {second.path.name} translate one after "
            "the other; leave it out"
        )
    from heedful.translation.pivot import PivotTranslator

    translator = PivotTranslator.from_runs(first, second, parse_device(device), parse_engine(engine), console.say)
    if "torch" in (translator.first.engine.name, translator.second.engine.name):
        from heedful.device import use_threads

        use_threads(0)
    return LoadedModel((first, second), translator)
