"""What each part costs: the parts add up to the whole, counted in two ways."""

from dataclasses import replace

import numpy as np
import pytest
from model_examples import FAMILIES, SMALL, shaken

from heedful.config import ModelConfig
from heedful.inspection.cost import count_costs, count_lengths
from heedful.models.flops import forward_flops


@pytest.mark.parametrize(
    "config",
    [SMALL, replace(SMALL, norm="pre"), FAMILIES["relative"], replace(SMALL, window=2), replace(SMALL, sharing="none")],
)
def test_the_parts_add_up_to_the_whole_model(config: ModelConfig) -> None:
    model = shaken(config)
    costs = count_costs(model, 7, 5)
    assert sum(part.weights for part in costs) == sum(parameter.numel() for parameter in model.parameters())
    expected = forward_flops(config, len(model.output_weight), np.array([7]), np.array([5]))
    assert sum(part.operations for part in costs) == expected
    by_name = {part.name: part for part in costs}
    assert by_name["embedding"].operations == 0
    assert by_name["output"].activations == 5 * len(model.output_weight)
    assert by_name["encoder.attention"].weight_bytes == 4 * by_name["encoder.attention"].weights


def test_the_share_of_the_pairs_grows_with_the_length() -> None:
    shares = [each.pair_share for each in count_lengths(SMALL, 30)]
    assert shares == sorted(shares)
    assert 0 < shares[0] < shares[-1] < 1
