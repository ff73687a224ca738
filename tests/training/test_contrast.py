"""The gradient of CLIP's loss is that of a whole batch, however many workers share it."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from heedful.data.batch import Position
from heedful.data.captions import find_matches, make_caption_batch
from heedful.models.build import build_model
from heedful.models.clip import CLIP, contrastive_loss
from heedful.models.size import Vocabulary
from heedful.tasks import make_experiment
from heedful.training.contrast import ContrastiveGradients
from heedful.training.gradients import Objective, Update

TEXTS = [[4, 7, 5], [4, 9, 11, 5], [4, 7, 5], [4, 12, 13, 14, 5], [4, 8, 5]]


def model(dropout: float = 0.0) -> CLIP:
    sizes = {"d_model": 12, "d_ff": 22, "num_heads": 3, "encoder_layers": 2, "decoder_layers": 1, "image_size": 8}
    config = make_experiment({"model": {"preset": "clip", **sizes, "dropout": dropout, "max_positions": 9}}).model
    torch.manual_seed(3)
    made = build_model(config, Vocabulary(17, 17, 0, 5))
    assert isinstance(made, CLIP)
    return made


def update(parts: int) -> Update:
    pixels = np.random.default_rng(1).integers(0, 256, (5, 8, 8, 3)).astype(np.uint8)
    places = [np.arange(5)[part::parts] for part in range(parts)]
    batches = [make_caption_batch(pixels[some], [TEXTS[place] for place in some], some) for some in places]
    return Update(batches, 5, 5, 0, Position())


def gradients(workers: int, dropout: float = 0.0) -> tuple[float, dict[str, Tensor]]:
    own = model(dropout)
    loss = ContrastiveGradients(own, Objective(0.0, seed=1), workers)(update(workers), step=1)
    return loss, {name: weight.grad for name, weight in own.named_parameters() if weight.grad is not None}


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_parts_give_the_gradient_of_the_whole_batch(workers: int) -> None:
    own, (batch,) = model(), update(1).parts
    pictures = own.encode(batch.source, batch.source_lengths)
    logits = own.compare(pictures, own.encode_texts(batch.target_in, batch.target_lengths))
    wanted = contrastive_loss(logits, find_matches([batch])) / 5
    wanted.backward()
    loss, found = gradients(workers)
    assert loss == pytest.approx(wanted.item(), rel=1e-5)
    assert found.keys() == dict(own.named_parameters()).keys()
    for name, weight in own.named_parameters():
        assert weight.grad is not None
        torch.testing.assert_close(found[name], weight.grad, rtol=1e-4, atol=1e-6, msg=name)


def test_dropout_does_not_depend_on_the_parts() -> None:
    loss, found = gradients(1, dropout=0.3)
    again, others = gradients(2, dropout=0.3)
    assert loss == pytest.approx(again, rel=1e-5)
    assert loss != pytest.approx(gradients(1)[0], rel=1e-3)
    for name, gradient in found.items():
        torch.testing.assert_close(others[name], gradient, rtol=1e-4, atol=1e-6, msg=name)


def test_equal_texts_match_whichever_part_they_are_in() -> None:
    wanted = torch.eye(5).bool()
    wanted[0, 2] = wanted[2, 0] = True
    assert find_matches(update(1).parts).equal(wanted)
    order = [0, 2, 4, 1, 3]  # of two parts
    assert find_matches(update(2).parts).equal(wanted[order][:, order])


def test_several_processes_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import caption_examples

    import heedful
    from heedful.errors import ConfigError
    from heedful.training.process_group import ProcessGroup

    captions = caption_examples.write_captioned(tmp_path / "shapes", each=1)
    monkeypatch.setattr(ProcessGroup, "world_size", 2)
    with pytest.raises(ConfigError, match="2 processes train together, but CLIP compares all pairs"):
        heedful.train(captions=captions, out=tmp_path / "run", settings={"train.max_steps": 1})
