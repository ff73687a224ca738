"""What routes that run a model of PyTorch share: the served models of one kind, and the turns that requests take."""

from collections.abc import Mapping
from typing import Generic, TypeVar

from heedful.serve.http_errors import RequestError
from heedful.serve.turns import Turns

Model = TypeVar("Model")


class ModelDesk(Generic[Model]):
    """The served models of one kind, by name."""

    def __init__(self, models: Mapping[str, Model], most_waiting: int, kind: str, listed: str) -> None:
        """`kind` names them in an error, and `listed` is their key in the answer of /v1/models."""
        self._models = models
        self._missing = f"no such model of {kind} is loaded; /v1/models lists them under {listed}"
        self.turns = Turns(most_waiting)

    @property
    def names(self) -> list[str]:
        """The names of the models, in the order of the command line."""
        return list(self._models)

    def select(self, name: str | None) -> tuple[str, Model]:
        """The model of this name, or the only one."""
        if name is None and len(self._models) == 1:
            return next(iter(self._models.items()))
        if name is None and self._models:
            raise RequestError(400, f"Invalid request: name a model, one of {', '.join(self._models)}")
        if name is None or name not in self._models:
            raise RequestError(404, self._missing)
        return name, self._models[name]
