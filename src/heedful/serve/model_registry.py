"""The models that are served: loaded once, shared by all workers, replaced while requests go on."""

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

from heedful.data.pairs import Pair
from heedful.errors import ConfigError, HeedfulError
from heedful.serve.http_errors import Refused
from heedful.storage.model_names import find_model
from heedful.storage.run_folder import RunFolder
from heedful.tasks import find_task
from heedful.text.language_detection import count_trigrams, known_languages
from heedful.translation.translator import Translator

if TYPE_CHECKING:
    from heedful.attention.aligner import Aligner

Load = Callable[[Path], Translator]
_LOG = logging.getLogger(__name__)
_RETRY = 10.0  # seconds


@dataclass(frozen=True, slots=True)
class Place:
    """A run folder, and what it is called here."""

    folder: Path
    name: str
    source: str
    target: str


class Model:
    """One version of a model. Requests that have begun with it end with it."""

    def __init__(self, place: Place, translator: Translator, load: Load) -> None:
        self.name, self.source, self.target = place.name, place.source, place.target
        self.translator = translator
        self.run = RunFolder.open(place.folder)
        self.weights = _weights(self.run)
        self._load = load
        self.alone = Lock()

    @cached_property
    def inner(self) -> Translator:
        """The same model once more, to be used by who holds `alone`.

        What is written down inside of a model would be mixed up with what other threads do there. A folder that has
        other weights by now is refused: what was looked into would not be what translates.
        """
        self._check()
        inner = self._load(self.run.path)
        self._check()  # it may have changed meanwhile
        return inner

    def _check(self) -> None:
        if _weights(self.run) != self.weights:
            message = f"{self.name} has new weights that are not in use yet; have the server take them up by SIGHUP"
            raise Refused(503, message, _RETRY)

    def can_align(self) -> bool:
        """Whether it can tell which word comes from which."""
        from heedful.translation.word_alignment import can_align

        with self.alone:
            return can_align(self.inner)

    @cached_property
    def aligner(self) -> "Aligner":
        """Where this model aligns words; for who holds `alone`."""
        from heedful.progress import SilentReporter
        from heedful.translation.word_alignment import find_aligner

        return find_aligner(self.run, self.inner, SilentReporter())


class Shelf:
    """All models, by name."""

    def __init__(self, places: Sequence[Place], load: Load) -> None:
        self._places = places
        self._load = load
        self._models = {place.name: Model(place, load(place.folder), load) for place in places}
        self._sharing = ExitStack()

    @property
    def models(self) -> list[Model]:
        """In the order in which they were named."""
        return list(self._models.values())

    def between(self, source: str, target: str) -> Model | None:
        """The first for these languages."""
        return next((model for model in self.models if (model.source, model.target) == (source, target)), None)

    @property
    def targets(self) -> dict[str, list[str]]:
        """Every language, and those that it can be translated into."""
        codes = dict.fromkeys(code for model in self.models for code in (model.source, model.target))
        return {
            code: list(dict.fromkeys(model.target for model in self.models if model.source == code)) for code in codes
        }

    def share(self) -> int:
        """Have every engine ready for several threads that ask it at once; give their number."""
        workers = max(model.translator.engine.workers for model in self.models)
        for model in self.models:
            self._sharing.enter_context(model.translator.engine.share_threads(workers))
        return workers

    def close(self) -> None:
        """No more threads ask."""
        self._sharing.close()

    def renew(self) -> None:
        """Load what has changed on disk. A model that cannot be loaded leaves the old one in its place."""
        for place in self._places:
            try:
                if _weights(RunFolder.open(place.folder)) != self._models[place.name].weights:
                    model = Model(place, self._load(place.folder), self._load)
                    self._models[place.name] = model
                    _LOG.info("%s: weights %s are in use from now on", place.name, model.weights)
            except Exception as error:  # whatever is wrong, what is there goes on
                unexpected = not isinstance(error, HeedfulError)
                _LOG.error("%s: goes on with the weights that it has: %s", place.name, error, exc_info=unexpected)

    def trigrams(self) -> dict[str, Mapping[str, int]]:
        """What tells the languages apart: validation sentences, and the program's own table where a folder has none."""
        from heedful.storage.run_folder import read_valid_pairs

        samples: dict[str, list[str]] = {code: [] for code in self.targets}
        for model in self.models:
            pairs: Sequence[Pair] = read_valid_pairs(model.run) if (model.run.data / "valid.json").exists() else ()
            samples[model.source] += [pair.source for pair in pairs]
            samples[model.target] += [pair.target for pair in pairs]
        table = known_languages()
        return {code: count_trigrams(texts) if texts else table.get(code, {}) for code, texts in samples.items()}


def places(folders: Sequence[Path], languages: Sequence[str] = ()) -> list[Place]:
    """Models by their own names; languages are those that they were trained for, unless given (`en-de`)."""
    if languages and len(languages) != len(folders):
        raise ConfigError(f"--languages is given {len(languages)} times for {len(folders)} runs; give it once for each")
    found: list[Place] = []
    for number, folder in enumerate(map(find_model, folders)):
        data = RunFolder.open(folder).experiment()
        if not find_task(data.task).translates:
            raise ConfigError(f"{folder} is a model for {data.task}; only translation models can be served")
        source, _, target = (languages[number] if languages else "").partition("-")
        source, target = source or data.data.source_language, target or data.data.target_language
        if not source or not target or "auto" in (source, target):
            raise ConfigError(f"{folder} does not say its languages; name them, say --languages en-de")
        name = folder.resolve().name
        if name in [place.name for place in found]:
            name = f"{name}-{number + 1}"
        found.append(Place(folder, name, source, target))
    return found


def _weights(run: RunFolder) -> str:
    """What tells these weights from others, of whichever engine they are."""
    from heedful.storage.files import sha256

    return run.weights_id[:12] if run.has_model else sha256(run.ctranslate2 / "model.bin")[:12]
