"""What each part costs: the parts add up to the whole, counted in two ways."""

from dataclasses import replace

import numpy as np
import pytest
from model_examples import FAMILIES, SMALL, shaken, shaken_of_family

from heedful.config import ModelConfig
from heedful.config.experiment import Head
from heedful.inspection.cost import count_costs, count_lengths
from heedful.models.bert import BERT
from heedful.models.flops import forward_flops
from heedful.models.t5 import T5
from heedful.models.vit import ViT

LABELS = ("a", "b", "c")


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


@pytest.mark.parametrize("name", ["t5", "t5-v1.1"])
def test_so_they_do_of_a_t5(name: str) -> None:
    model = shaken_of_family(FAMILIES[name])
    assert isinstance(model, T5)
    costs = count_costs(model, 7, 5)
    assert sum(part.weights for part in costs) == sum(parameter.numel() for parameter in model.parameters())
    expected = forward_flops(FAMILIES[name], len(model.output_weight), np.array([7]), np.array([5]))
    assert sum(part.operations for part in costs) == expected


@pytest.mark.parametrize("head", ["masked", "tokens", "sequence"])
def test_so_they_do_of_a_bert_that_is_asked_about_some_places(head: Head) -> None:
    config = replace(SMALL, family="bert", head=head, positions="learned", labels=() if head == "masked" else LABELS)
    model = BERT(config, 31, 0)
    asked = 1 if head == "sequence" else 3
    costs = count_costs(model, 7, asked)
    assert sum(part.weights for part in costs) == sum(parameter.numel() for parameter in model.parameters())
    assert sum(part.operations for part in costs) == forward_flops(config, 31, np.array([7]), np.array([asked]))
    shares = [each.pair_share for each in count_lengths(config, 31)]
    assert shares == sorted(shares)
    assert 0 < shares[0] < shares[-1] < 1


def test_so_they_do_of_a_vit_whose_patches_pass_through_a_map() -> None:
    config = replace(
        SMALL, family="vit", norm="pre", labels=LABELS, image_size=6, patch_size=2, channels=3, encoder_layers=2
    )
    model = ViT(config)
    costs = count_costs(model, 10, 1)
    assert sum(part.weights for part in costs) == sum(parameter.numel() for parameter in model.parameters())
    assert sum(part.operations for part in costs) == forward_flops(config, 3, np.array([108]), np.array([1]))
    assert count_lengths(config, 3) == []


def test_the_share_of_the_pairs_grows_with_the_length() -> None:
    shares = [each.pair_share for each in count_lengths(SMALL, 30)]
    assert shares == sorted(shares)
    assert 0 < shares[0] < shares[-1] < 1
