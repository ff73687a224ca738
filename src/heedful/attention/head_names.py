"""Heads by name: `encoder.5.3` is the third head of the encoder's fifth layer, counted from one as in the paper."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import get_args

from heedful.errors import ConfigError, did_you_mean
from heedful.models.predictor import AnyPredictor
from heedful.nn.multi_head import Kind

KINDS: tuple[Kind, ...] = get_args(Kind)


@dataclass(frozen=True, slots=True, order=True)
class Head:
    """One head. In Python, layers and heads count from 0, as all sequences do; its name counts from 1."""

    kind: Kind
    layer: int
    index: int

    def __str__(self) -> str:
        return f"{self.kind}.{self.layer + 1}.{self.index + 1}"

    @classmethod
    def parse(cls, name: str) -> "Head":
        """The head with this name."""
        match name.strip().split("."):
            case [kind, layer, index] if kind in KINDS and _is_number(layer) and _is_number(index):
                return cls(kind, int(layer) - 1, int(index) - 1)
            case [kind, *_] if kind not in KINDS:
                raise ConfigError(
                    f"unknown head: {name}; a name is kind.layer.head, with one of {', '.join(KINDS)} as its kind"
                    + did_you_mean(kind, KINDS)
                )
        raise ConfigError(f"unknown head: {name}; a name is kind.layer.head, counted from 1, such as encoder.5.3")


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and int(text[:9]) > 0 and len(text) < 10


def all_heads(model: AnyPredictor) -> list[Head]:
    """Every head of a model, by kind and by layer."""
    return [
        Head(kind, layer, index)
        for kind, layers in model.attentions.items()
        for layer, attention in enumerate(layers)
        for index in range(attention.num_heads)
    ]


def find_heads(model: AnyPredictor, names: Iterable[str]) -> list[Head]:
    """The heads with these names; it is an error if the model does not have one of them."""
    if isinstance(names, str):  # a string is an iterable too, of its characters
        raise ConfigError(f"give heads as a list of names, not as one string; write ['{names}']")
    heads = [Head.parse(name) for name in names]
    for head in heads:
        _check_exists(model, head)
    return heads


def _check_exists(model: AnyPredictor, head: Head) -> None:
    layers = model.attentions.get(head.kind, ())
    if not layers:
        raise ConfigError(f"unknown head: {head}; this model has no {head.kind} attention")
    if head.layer >= len(layers):
        raise ConfigError(f"unknown head: {head}; {head.kind} attention has layers 1 to {len(layers)}")
    if head.index >= (count := layers[head.layer].num_heads):
        raise ConfigError(
            f"unknown head: {head}; layer {head.layer + 1} of {head.kind} attention has heads 1 to {count}"
        )
