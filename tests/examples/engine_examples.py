"""Small models in run folders and in the formats of other programs."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
import toy
from model_examples import EOS, PAD, SOURCE_TYPES, TARGET_TYPES, shake, shaken

from heedful.config import Experiment, ModelConfig, SearchConfig
from heedful.decoding.ctranslate2_engine import CTranslate2Engine
from heedful.decoding.torch_engine import TorchEngine
from heedful.formats.ctranslate2 import Numbers, Pieces, export_ctranslate2
from heedful.models.build import build_seq2seq
from heedful.storage.run_folder import RunFolder, Tokenizers
from heedful.text.tokenizer_training import learn_tokenizer

POST = ModelConfig(d_model=16, d_ff=24, num_heads=2, encoder_layers=1, decoder_layers=2, dropout=0.0)


def engines(
    config: ModelConfig, folder: Path, numbers: Numbers = "float32", *, likes_pad: bool = False
) -> tuple[TorchEngine, CTranslate2Engine]:
    """The same random model in both engines."""
    pytest.importorskip("ctranslate2", reason="needs CTranslate2")
    model = shaken(config)
    if likes_pad:
        with torch.no_grad():  # where EOS is likely, padding is more so
            model.output_weight[PAD] = 1.2 * model.output_weight[EOS]
    target = [f"t{number}" for number in range(TARGET_TYPES)]
    source = target if config.sharing == "all" else [f"s{number}" for number in range(SOURCE_TYPES - 2)]
    # The special pieces are called alike on both sides.
    pieces = Pieces(source if config.sharing == "all" else [*target[:2], *source], target, target[PAD], target[EOS])
    export_ctranslate2(model, pieces, folder, numbers, "these")
    return TorchEngine(model, EOS), CTranslate2Engine(folder, workers=1)


def untrained_run(
    folder: Path, config: ModelConfig = POST, *, joint: bool = True, seed: int = 5, beam: int = 3
) -> RunFolder:
    """A run folder with random weights, which nothing was trained for."""
    experiment = Experiment(model=config, search=SearchConfig(beam=beam, max_extra=4))
    experiment = replace(experiment, text=replace(experiment.text, kind="words", vocabulary_size=300))
    words = toy.dictionary()
    both = [learn_tokenizer(side, experiment.text) for side in (list(words), list(words.values()))]
    tokenizers = Tokenizers(both[0], both[0]) if joint else Tokenizers(*both)
    torch.manual_seed(seed)
    model = build_seq2seq(config, tokenizers.vocabulary)
    shake(model)
    run = RunFolder.create(folder)
    run.begin(experiment)
    run.describe(experiment, tokenizers)
    run.write_weights(dict(model.named_parameters()), "random")
    return run
