"""Searches on a fake of Apple's GPU give the results of the CPU."""

from dataclasses import replace

import pytest
import torch
from fake_mps import MpsTensor, fake_mps, move
from model_examples import EOS, FAMILIES, sentences, shaken_of_family

from heedful.config import SearchConfig
from heedful.decoding.topk import BLOCK, top_log_probs
from heedful.decoding.torch_engine import TorchEngine

SEARCHES = {
    "greedy": SearchConfig(beam=1),
    "beam": SearchConfig(beam=3),
    "diverse": SearchConfig(beam=4, groups=2),
    "sampling": SearchConfig(method="sample", temperature=0.9, seed=4),
    "top-k": SearchConfig(method="sample", top_k=5, seed=4),
    "nucleus": SearchConfig(method="sample", top_p=0.7, seed=4),
}
SOURCES = sentences([4, 9, 2, 6], 11)


@pytest.mark.parametrize("family", ["transformer", "window", "convolutional"])
@pytest.mark.parametrize("name", SEARCHES)
def test_every_search_gives_the_outputs_of_the_cpu(name: str, family: str) -> None:
    model = shaken_of_family(FAMILIES[family])
    search = replace(SEARCHES[name], max_extra=6)
    expected = TorchEngine(model, EOS).decode(SOURCES, search, 1)
    with fake_mps():
        move(model)
        found = TorchEngine(model, EOS).decode(SOURCES, search, 1)
    assert isinstance(model.output_weight, MpsTensor)
    assert [[one.tokens for one in several] for several in found] == [
        [one.tokens for one in several] for several in expected
    ]


@pytest.mark.parametrize("vocabulary", [7, 40 * BLOCK + 5])
def test_the_likeliest_tokens_are_found_where_topk_works_in_int32(vocabulary: int) -> None:
    log_probs = torch.randn(3, vocabulary, generator=torch.Generator().manual_seed(2)).log_softmax(1)
    values, ids = top_log_probs(log_probs, 4)
    with fake_mps() as device:
        found, found_ids = top_log_probs(log_probs.to(device), 4)
    assert torch.equal(found_ids.cpu(), ids)
    assert torch.equal(found.cpu(), values)


def test_the_fake_has_the_limits_of_mps() -> None:
    keys = torch.tensor([[5 << 32, (3 << 32) + 1, 2]])
    with fake_mps() as device:
        moved = keys.to(device)
        assert moved.topk(1, largest=False).indices.tolist() == [[0]]  # the upper halves are lost
        with pytest.raises(TypeError, match="float64"):
            moved.double()
        with pytest.raises(TypeError, match="numpy"):
            moved.numpy()
        with pytest.raises(RuntimeError, match="same device"):
            moved + keys
