"""`heedful export`"""

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from heedful.cli import console
from heedful.cli.common import JsonOption, ModelArgument
from heedful.errors import ConfigError, did_you_mean

if TYPE_CHECKING:
    from heedful.formats.ctranslate2 import Numbers
    from heedful.formats.export import Format
    from heedful.formats.parity import Proof, RoundingLoss

_FORMATS = ("ctranslate2", "huggingface", "onnx")
_NUMBERS = ("float32", "float16", "int8")


def export(
    run: ModelArgument,
    to: Annotated[str, typer.Option(help="ctranslate2, huggingface or onnx.")],
    out: Annotated[
        Path | None, typer.Argument(help="The new folder; without it, a ctranslate2 model goes into the run folder.")
    ] = None,
    numbers: Annotated[
        str, typer.Option(help="Type of the weights: float32, float16 or int8 (ctranslate2 only).")
    ] = "float32",
    as_json: JsonOption = False,
) -> None:
    """Write a model in another program's format, and prove that both agree."""
    _check("--to", to, _FORMATS)
    _check("--numbers", numbers, _NUMBERS)
    from heedful.device import use_threads
    from heedful.formats.export import export as write

    use_threads(0)
    proof = write(run, cast("Format", to), out, cast("Numbers", numbers))
    console.out(describe_proof(proof, out or run, as_json))
    if proof.rounding and proof.rounding.is_much:
        console.say(
            f"warning: with weights as {numbers}, {describe_rounding(proof.rounding)}; "
            f"--numbers {'float16' if numbers == 'int8' else 'float32'} is more exact, or train the model longer"
        )


def describe_proof(proof: "Proof", out: Path, as_json: bool) -> str:
    """Describe the proof of a conversion."""
    if as_json:
        return json.dumps(dataclasses.asdict(proof))
    rounding = f"; {describe_rounding(proof.rounding)}" if proof.rounding else ""
    best = "nearest other sample" if proof.compared == "features" else "best output"
    return (
        f"{out}: {proof.same} of {proof.sentences} samples have the same {best}; "
        f"the {proof.compared} of {proof.tokens} tokens differ by at most {proof.largest:.2g}{rounding}"
    )


def describe_rounding(loss: "RoundingLoss") -> str:
    """Say how many translations differ and what they score."""
    if loss.original is None:
        return (
            f"{loss.different} of {loss.sentences} translations of random pieces differ, "
            f"with {loss.metric} {loss.rounded:.1f} against those of the original"
        )
    return (
        f"{loss.different} of {loss.sentences} translations of validation sentences differ, "
        f"with {loss.metric} {loss.rounded:.2f} instead of {loss.original:.2f}"
    )


def _check(option: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise ConfigError(f"{option} must be one of {', '.join(known)}, but is {value}{did_you_mean(value, known)}")
