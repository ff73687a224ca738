"""Choose the engine that translates, and use PyTorch for everything that it cannot do."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from threading import Lock
from typing import TYPE_CHECKING, Literal

from heedful.config import Device, SearchConfig
from heedful.decoding.engine import Engine, EngineName
from heedful.decoding.token_constraints import UNCONSTRAINED, TokenConstraints
from heedful.errors import ConfigError, require_library
from heedful.storage.run_folder import RunFolder, require_compatible

if TYPE_CHECKING:  # other engines do not wait for PyTorch
    import torch

    from heedful.decoding.torch_engine import TorchEngine

EngineChoice = Literal["auto", "torch", "ctranslate2"]


class Engines:
    """The preferred engine, and the torch engine of the same model for everything that the preferred one cannot do."""

    def __init__(
        self, preferred: Engine, load_torch: "Callable[[], TorchEngine]", on_limitation: Callable[[str], None]
    ) -> None:
        """`on_limitation` is called with what the preferred engine cannot do before torch does it; it may raise."""
        self.preferred = preferred
        self._load_torch = load_torch
        self._on_limitation = on_limitation
        self._torch: TorchEngine | None = None
        self._loading = Lock()

    @property
    def torch(self) -> "TorchEngine":
        """The torch engine, whose model can be inspected and changed; it is loaded when first needed."""
        with self._loading:
            self._torch = self._torch or self._load_torch()
        return self._torch

    def assign(self, limitations: Mapping[int, str]) -> Iterator[tuple[Engine, list[int]]]:
        """Each engine with the numbers of its texts; `limitations` says why the preferred engine cannot do a text."""
        if possible := [number for number, limitation in limitations.items() if not limitation]:
            yield self.preferred, possible
        if others := [number for number, limitation in limitations.items() if limitation]:
            yield self._use_torch(limitations[others[0]]), others

    def find_limitation(self, search: SearchConfig, constraints: TokenConstraints, length: int = 0) -> str:
        """The reason why the preferred engine cannot do this search; empty if it can.

        While the attention of the PyTorch model is recorded or changed, only that model can translate.
        """
        if self._torch is not None and self._torch is not self.preferred and self._torch.is_instrumented:
            return "attention is recorded or changed"
        return self.preferred.find_limitation(search, constraints, length)

    def choose(self, search: SearchConfig) -> Engine:
        """The engine for a search without constraints."""
        limitation = self.find_limitation(search, UNCONSTRAINED)
        return self._use_torch(limitation) if limitation else self.preferred

    def _use_torch(self, limitation: str) -> "TorchEngine":
        sentence = f"{limitation}, which the {self.preferred.name} engine cannot do"
        require_library(f"{sentence}; the torch engine", "torch")
        self._on_limitation(sentence)
        return self.torch


def only_torch(engine: "TorchEngine") -> Engines:
    """The torch engine for everything."""
    return Engines(engine, lambda: engine, _refuse)


def load_engines(
    run: RunFolder,
    device: Device,
    choice: EngineChoice,
    others: Sequence[RunFolder],
    notify: Callable[[str], None],
    callers: int = 1,
) -> Engines:
    """Choose an engine and load the model into it.

    `notify` is called with the choice, and later with the reason whenever torch steps in.

    An engine that you choose by name does all translating itself, or refuses. Only inspection and alignment use torch.
    """

    def load_torch() -> "TorchEngine":
        require_library("the torch engine", "torch")
        from heedful.device import choose_device

        return load_torch_engine(run, choose_device(device), others)

    name = choose_engine(run, choice, device, others)
    if choice == "auto" and run.has_model and run.ctranslate2.is_dir():  # there was a choice
        stale = "" if run.has_fresh_ctranslate2 else "; the CTranslate2 export belongs to an older model"
        notify(f"engine: {name}{stale}")
    if name == "torch":
        return only_torch(load_torch())
    from heedful.decoding.ctranslate2_engine import CTranslate2Engine

    run.check_ctranslate2()
    on_limitation = _NotifyOnce(notify) if choice == "auto" else _refuse
    return Engines(CTranslate2Engine(run.ctranslate2, callers=callers), load_torch, on_limitation)


def load_torch_engine(run: RunFolder, device: "torch.device", others: Sequence[RunFolder] = ()) -> "TorchEngine":
    """The torch engine on this device; with `others`, it is an ensemble."""
    from heedful.decoding.torch_engine import TorchEngine

    for other in others:
        require_compatible(run, other)
    model, *more = (one.seq2seq().to(device) for one in (run, *others))
    return TorchEngine(model, run.tokenizers().target.eos_id, more)


def choose_engine(
    run: RunFolder, choice: EngineChoice, device: Device = "auto", others: Sequence[RunFolder] = ()
) -> EngineName:
    """The name of the engine; "auto" takes the fastest that can run the models in the folder."""
    if choice == "ctranslate2":
        if not run.ctranslate2.is_dir():
            raise ConfigError(
                f"{run.path} has no model for the ctranslate2 engine; add one: "
                f"heedful export {run.path} --to ctranslate2"
            )
        if not run.has_fresh_ctranslate2:
            raise ConfigError(
                f"the CTranslate2 export in {run.path} belongs to an older model; export it again: "
                f"heedful export {run.path} --to ctranslate2"
            )
        if others:
            raise ConfigError("the ctranslate2 engine runs one model, not an ensemble; use --engine torch")
        if device not in ("auto", "cpu"):
            raise ConfigError(f"the ctranslate2 engine runs on the CPU, not on {device}; use --engine torch")
        return choice
    if choice == "torch" or others or device not in ("auto", "cpu"):
        return "torch"
    return "ctranslate2" if run.has_fresh_ctranslate2 and find_spec("ctranslate2") else "torch"


def _refuse(limitation: str) -> None:
    raise ConfigError(f"{limitation}; use --engine torch")


class _NotifyOnce:
    """Passes on each limitation the first time it occurs."""

    def __init__(self, notify: Callable[[str], None]) -> None:
        self._notify = notify
        self._known: set[str] = set()

    def __call__(self, limitation: str) -> None:
        if limitation not in self._known:
            self._known.add(limitation)
            self._notify(f"{limitation}; the torch engine does it")
