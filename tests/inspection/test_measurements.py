"""Measurements on small models, against what has to come out."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from model_examples import FAMILIES, SMALL, SOURCE_TYPES, sentences, shaken

from heedful.config import ModelConfig
from heedful.inspection.measurements import compare_alone_and_together, measure_gains, measure_reach, measure_similarity
from heedful.inspection.question_sections import rank_correlation
from heedful.storage.model_names import find_model
from heedful.storage.run_folder import RunFolder
from heedful.text.tokenizer import Tokenizer

SOURCE = sentences([9], SOURCE_TYPES)[0]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return RunFolder.open(find_model("en-de")).tokenizers().source


@pytest.mark.parametrize("config", [SMALL, replace(SMALL, norm="pre"), FAMILIES["relative"]])
def test_news_reaches_every_piece_in_one_layer_or_its_neighbours(config: ModelConfig, tokenizer: Tokenizer) -> None:
    model = shaken(replace(config, encoder_layers=3))
    reach = measure_reach(model, SOURCE, tokenizer)
    layers, pieces = len(model.encoder), len(SOURCE)
    assert reach.whole.shape == (layers, pieces)
    assert (reach.whole > 0).all()
    for layer in range(layers):
        assert (reach.restricted[layer, : layer + 2] > 0).all()
        assert (reach.restricted[layer, layer + 2 :] == 0).all()
    assert all(layer.attention.window == config.window for layer in model.encoder)


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_gains_are_the_singular_values_of_the_derivative(norm: str) -> None:
    model = shaken(replace(SMALL, norm=norm))  # type: ignore[arg-type]
    x = np.random.default_rng(3).normal(size=SMALL.d_model)
    gains = measure_gains(model, x)
    layer, at = model.encoder[0], torch.tensor(x, dtype=torch.float32)
    columns = []
    for unit in torch.eye(len(at)) * 1e-3:
        ends = [layer.feed_forward_residual((at + way * unit)[None], None, layer.feed_forward)[0] for way in (1, -1)]
        columns.append((ends[0] - ends[1]).detach() / 2e-3)
    values = torch.linalg.svdvals(torch.stack(columns, dim=1))
    assert gains.largest == pytest.approx(float(values[0]), rel=0.02)
    assert gains.below_one == pytest.approx(float((values < 1).float().mean()), abs=0.1)
    assert gains.smallest < 1  # so the derivative of x + F(x) is not "always at least 1"


def test_a_position_wise_network_gives_each_row_the_same_alone() -> None:
    rows = np.random.default_rng(5).normal(size=(6, SMALL.d_model))
    assert compare_alone_and_together(shaken(SMALL), rows) < 1e-5


def test_similarity_compares_pieces_that_differ_in_a_capital_letter(tokenizer: Tokenizer) -> None:
    model = shaken(SMALL)
    size = tokenizer.vocabulary_size
    model.source_embedding.weight = torch.nn.Parameter(torch.randn(size, 8, generator=torch.Generator().manual_seed(1)))
    names = {name: number for number, name in enumerate(tokenizer.pieces(list(range(size))))}
    with torch.no_grad():
        for name, number in names.items():
            if name != name.lower() and name.lower() in names:
                model.source_embedding.weight[number] = 2 * model.source_embedding.weight[names[name.lower()]]
    found = measure_similarity(model, tokenizer)
    assert found.pairs > 100
    assert found.alike == pytest.approx(1.0)
    assert abs(found.random) < 0.1


def test_rank_correlation_is_spearmans() -> None:
    assert rank_correlation([1.0, 2.0, 3.0], [10.0, 400.0, 401.0]) == pytest.approx(1.0)
    assert rank_correlation([1.0, 2.0, 3.0], [3.0, 2.0, 1.0]) == pytest.approx(-1.0)
    assert rank_correlation([1.0, 2.0, 2.0, 4.0], [1.0, 3.0, 2.0, 4.0]) == pytest.approx(0.9487, abs=1e-4)
    assert rank_correlation([1.0, 1.0], [1.0, 2.0]) == 0.0
