"""The served models: loaded once, shared by all workers, and reloaded while requests are running.

Two models that share English also translate one after the other, between languages that no model translates directly.
"""

import logging
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

from heedful.config import SearchConfig
from heedful.errors import ConfigError, HeedfulError, counted, is_installed, require_library
from heedful.serve.batcher import SHARED_LANES
from heedful.serve.http_errors import RequestError
from heedful.storage.model_names import find_model
from heedful.storage.run_folder import RunFolder
from heedful.tasks import find_task
from heedful.text.constraints import Constraints
from heedful.text.languages import LanguageTable, learn_language, match_language
from heedful.translation.direction import PIVOT, find_pivots
from heedful.translation.pipeline import TokenizedText
from heedful.translation.pivot import join_legs, prepare_second_leg
from heedful.translation.result import Translation
from heedful.translation.translator import Translator

if TYPE_CHECKING:
    from heedful.attention.aligner import Aligner

Load = Callable[[Path], Translator]
_LOG = logging.getLogger(__name__)
_RETRY = 10.0  # seconds


@dataclass(frozen=True, slots=True)
class ModelLocation:
    """A run folder, and the name and languages under which it is served."""

    folder: Path
    name: str
    source: str
    target: str


class ServedModel:
    """One version of a model. A request that has started with it finishes with it."""

    via = ""  # it translates directly

    def __init__(self, location: ModelLocation, translator: Translator, load: Load) -> None:
        self.name, self.source, self.target = location.name, location.source, location.target
        self.translator = translator
        self.run = RunFolder.open(location.folder)
        self.weights = _fingerprint_weights(self.run)
        self._load = load
        self.exclusive = Lock()

    @cached_property
    def exclusive_translator(self) -> Translator:
        """A second copy of the model; hold `exclusive` while you use it.

        Attention is recorded inside a model, so other threads must not use it meanwhile. If the weights in the folder
        have changed, this raises, because the copy would not be the model that translates.
        """
        self._check_weights()
        copy = self._load(self.run.path)
        self._check_weights()  # they may have changed meanwhile
        return copy

    def _check_weights(self) -> None:
        if _fingerprint_weights(self.run) != self.weights:
            message = f"{self.name} has new weights that are not loaded yet; send SIGHUP to the server to load them"
            raise RequestError(503, message, _RETRY)

    def tokenize(self, texts: Sequence[str]) -> list[TokenizedText]:
        """The texts with their source ids."""
        return self.translator.tokenize(texts)

    def translate(
        self,
        texts: Sequence[str | TokenizedText],
        *,
        search: SearchConfig,
        n_best: int = 1,
        constraints: Constraints | None = None,
        confidence: bool = False,
        alignments: bool = False,
    ) -> list[Translation]:
        """Translate as one batch, in this thread; with alignments, in a copy that nobody else uses meanwhile."""
        if not alignments:
            return self.translator.translate(
                texts, search=search, n_best=n_best, constraints=constraints, confidence=confidence, workers=1
            )
        with self.exclusive:
            return self.exclusive_translator.translate(
                texts,
                search=search,
                n_best=n_best,
                aligner=self.aligner,
                constraints=constraints,
                confidence=confidence,
                workers=1,
            )

    def can_align(self) -> bool:
        """Whether the model can align words. The first call may take long, so call this in a thread."""
        return self._can_align

    @cached_property
    def _can_align(self) -> bool:
        if not is_installed("torch"):
            return False
        from heedful.translation.word_alignment import can_align

        with self.exclusive:
            return can_align(self.exclusive_translator)

    @cached_property
    def aligner(self) -> "Aligner":
        """The word aligner of this model; hold `exclusive` while you use it."""
        require_library("aligning words", "torch")
        from heedful.progress import SilentReporter
        from heedful.translation.word_alignment import find_aligner

        return find_aligner(self.run, self.exclusive_translator, SilentReporter())


class PivotModel:
    """Two models that translate one after the other, through the language that they share."""

    def __init__(self, first: ServedModel, second: ServedModel) -> None:
        self.first, self.second = first, second
        self.name = f"{first.name}+{second.name}"
        self.source, self.via, self.target = first.source, second.source, second.target

    @property
    def translator(self) -> Translator:
        """The model that makes the alternatives."""
        return self.second.translator

    def tokenize(self, texts: Sequence[str]) -> list[TokenizedText]:
        """The texts with their source ids."""
        return self.first.tokenize(texts)

    def translate(
        self,
        texts: Sequence[str | TokenizedText],
        *,
        search: SearchConfig,
        n_best: int = 1,
        constraints: Constraints | None = None,
        confidence: bool = False,
        alignments: bool = False,
    ) -> list[Translation]:
        """Translate as one batch, in this thread. The options are for the second model."""
        pivots = self.first.translate(
            texts, search=self.first.translator.search, confidence=confidence, alignments=alignments
        )
        found = self.second.translate(
            prepare_second_leg(self.second.translator, pivots, constraints),
            search=search,
            n_best=n_best,
            constraints=constraints,
            confidence=confidence,
            alignments=alignments,
        )
        return join_legs(pivots, found, self.via)

    def can_align(self) -> bool:
        """Whether both models can align words. The first call may take long, so call this in a thread."""
        return self.first.can_align() and self.second.can_align()


class ModelRegistry:
    """The served models, by name."""

    def __init__(self, locations: Sequence[ModelLocation], load: Load) -> None:
        self._locations = locations
        self._load = load
        self._models = {location.name: ServedModel(location, load(location.folder), load) for location in locations}
        self._pivots = self._find_pivots()
        self.targets = self._find_targets()  # a new version of a model has the same languages
        self._sharing = ExitStack()

    @property
    def models(self) -> list[ServedModel]:
        """All models, in the order of the command line."""
        return list(self._models.values())

    @property
    def pivots(self) -> list[PivotModel]:
        """Pairs of models, for the languages that no model translates directly."""
        return self._pivots

    def match_language(self, code: str) -> str:
        """The code of the served language that a client means, such as "de" by "de-DE"; else the same code."""
        return match_language(code, self.targets)

    def find(self, source: str, target: str) -> ServedModel | PivotModel | None:
        """The first model for these languages, or else two."""
        return next((model for model in self._every if (model.source, model.target) == (source, target)), None)

    @property
    def _every(self) -> list[ServedModel | PivotModel]:
        return [*self.models, *self.pivots]

    def _find_direct(self, source: str, target: str) -> ServedModel:
        return next(model for model in self.models if (model.source, model.target) == (source, target))

    def _find_pivots(self) -> list[PivotModel]:
        pairs = find_pivots((model.source, model.target) for model in self.models)
        return [
            PivotModel(self._find_direct(source, PIVOT), self._find_direct(PIVOT, target)) for source, target in pairs
        ]

    def _find_targets(self) -> dict[str, list[str]]:
        """Each language, and the languages it can be translated into: first those that need only one model."""
        every = self._every
        codes = dict.fromkeys(code for model in self.models for code in (model.source, model.target))
        return {code: list(dict.fromkeys(model.target for model in every if model.source == code)) for code in codes}

    def share_engines(self) -> int:
        """Prepare every engine for the workers of the batcher, and return how many each lane should have."""
        workers = max((model.translator.engine.workers for model in self.models), default=1)
        for model in self.models:
            self._sharing.enter_context(model.translator.engine.share_threads(SHARED_LANES * workers))
        return workers

    def close(self) -> None:
        """End the use by several threads."""
        self._sharing.close()

    def reload(self) -> None:
        """Load models that have changed on disk. If that fails, the old model stays in use."""
        for location in self._locations:
            try:
                if _fingerprint_weights(RunFolder.open(location.folder)) != self._models[location.name].weights:
                    model = ServedModel(location, self._load(location.folder), self._load)
                    self._models[location.name] = model
                    self._pivots = self._find_pivots()
                    _LOG.info("%s: now using weights %s", location.name, model.weights)
            except Exception as error:  # whatever is wrong, the old model keeps working
                unexpected = not isinstance(error, HeedfulError)
                _LOG.error("%s: keeping the old weights: %s", location.name, error, exc_info=unexpected)

    def learn_languages(self) -> dict[str, LanguageTable]:
        """The tables of the languages of runs that have validation sentences."""
        from heedful.storage.run_folder import read_valid_pairs

        samples: dict[str, list[str]] = {}
        for model in self.models:
            for pair in read_valid_pairs(model.run) if (model.run.data / "valid.json").exists() else ():
                samples.setdefault(model.source, []).append(pair.source)
                samples.setdefault(model.target, []).append(pair.target)
        return {code: learn_language(texts) for code, texts in samples.items()}


@dataclass(frozen=True, slots=True)
class FoldersByTask:
    """The folders of models that translate; by name those that continue texts, label, give vectors or find pictures."""

    translators: list[Path]
    completers: dict[str, Path]
    classifiers: dict[str, Path]
    embedders: dict[str, Path]
    finders: dict[str, Path]


def split_by_task(folders: Sequence[Path]) -> FoldersByTask:
    """The folders by what their models do."""
    split = FoldersByTask([], {}, {}, {}, {})
    for folder in folders:
        found = find_model(folder)
        task = find_task(RunFolder.open(found).experiment().task)
        if not (task.continues_text or task.encoder or task.reads_pictures or task.matches_pictures):
            split.translators.append(folder)
            continue
        named, name = split.embedders, found.resolve().name
        if task.matches_pictures:
            named = split.finders
        elif task.continues_text:
            named = split.completers
        elif task.reads_pictures or task.encoder in ("sequence", "tokens"):
            named = split.classifiers
        named[f"{name}-{len(named) + 1}" if name in named else name] = found
    return split


def locate_models(folders: Sequence[Path], languages: Sequence[str] = ()) -> list[ModelLocation]:
    """Find the models and name them by their folders; `languages` (`en-de`) override what the runs say."""
    if languages and len(languages) != len(folders):
        raise ConfigError(
            f"--languages: {len(languages)} given for {counted(len(folders), 'model')}; give the option once per model"
        )
    found: list[ModelLocation] = []
    for number, folder in enumerate(map(find_model, folders)):
        data = RunFolder.open(folder).experiment()
        if not find_task(data.task).translates:
            raise ConfigError(f"{folder} is a model for {data.task}; only translation models can be served")
        source, _, target = (languages[number] if languages else "").partition("-")
        source, target = source or data.data.source_language, target or data.data.target_language
        if not source or not target or "auto" in (source, target):
            raise ConfigError(f"{folder} does not say its languages; name them, for example --languages en-de")
        name = folder.resolve().name
        if name in [location.name for location in found]:
            name = f"{name}-{number + 1}"
        found.append(ModelLocation(folder, name, source, target))
    return found


def _fingerprint_weights(run: RunFolder) -> str:
    """The beginning of the checksum of the weights."""
    from heedful.storage.files import sha256

    return run.weights_id[:12] if run.has_model else sha256(run.ctranslate2 / "model.bin")[:12]
