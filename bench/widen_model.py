"""Widen a model: its feed-forward layers get extra units that do nothing but have to be computed.

    .venv/bin/python bench/widen_model.py RUN OUT --d-ff 4096

Use it to see how a measurement changes with the size of a model. Translations stay the same.
"""

import argparse
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from heedful.storage.run_folder import RunFolder


def main() -> None:
    parser = argparse.ArgumentParser(description="Widen a model; its translations stay the same.")
    parser.add_argument("run", type=Path, help="a run folder of a Transformer")
    parser.add_argument("out", type=Path, help="the new run folder")
    parser.add_argument("--d-ff", type=int, required=True, help="the new width of the feed-forward layers")
    options = parser.parse_args()
    widen(RunFolder.open(options.run), options.out, options.d_ff)


def widen(run: RunFolder, out: Path, d_ff: int) -> RunFolder:
    """A new run folder with the wider model."""
    experiment = run.experiment()
    larger = replace(experiment, model=replace(experiment.model, d_ff=d_ff))
    weights = run.model().state_dict()
    folder = RunFolder.create(out)
    folder.begin(larger)
    folder.describe(larger, run.tokenizers())
    folder.write_weights({name: _padded(name, weight, d_ff) for name, weight in weights.items()}, run.note())
    folder.write_about({"data": run.about().get("data", {})})
    return folder


def _padded(name: str, weight: Tensor, d_ff: int) -> Tensor:
    if "feed_forward.inner." in name:
        return torch.cat([weight, weight.new_zeros(d_ff - len(weight), *weight.shape[1:])])
    if name.endswith("feed_forward.outer.weight"):
        return torch.cat([weight, weight.new_zeros(len(weight), d_ff - weight.shape[1])], dim=1)
    return weight


if __name__ == "__main__":
    main()
