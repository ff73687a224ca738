"""Length penalties: what a log-probability is divided by, so that short outputs don't win for being short."""

from typing import TYPE_CHECKING, TypeVar, assert_never

from heedful.config.experiment import Penalty

if TYPE_CHECKING:
    from torch import Tensor

    Length = TypeVar("Length", float, Tensor)
else:  # an engine that needs no PyTorch should not wait for it
    Length = TypeVar("Length")


def length_penalty(length: Length, alpha: float, kind: Penalty) -> Length:
    """Section 6.1 takes ((5 + n) / 6)^alpha from Wu et al. (2016), equation 14; n counts EOS."""
    match kind:
        case "paper":
            return ((5 + length) / 6) ** alpha
        case "power":
            return length**alpha
        case _:
            assert_never(kind)
