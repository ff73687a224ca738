"""How much faster the base model is with fewer heads; the choice of heads and the weights do not matter for that.

.venv/bin/python bench/pruning_speed.py
"""

import random
import time
from collections.abc import Callable
from statistics import median

import torch

from heedful.attention.head_names import all_heads
from heedful.attention.pruning import choose_least_important, remove_heads
from heedful.config import ModelConfig
from heedful.data.batch import pack
from heedful.models.transformer import Transformer

KEEP = (0.7, 0.5, 0.25)
VOCABULARY, SENTENCES, LENGTH = 10_000, 32, 15
ROUNDS, WARM_UP = 9, 2


def make_models() -> dict[float, Transformer]:
    """The whole model, and models that keep some of its heads."""
    chance = random.Random(1)
    whole = Transformer(ModelConfig(), VOCABULARY, VOCABULARY, 0)
    heads = all_heads(whole)
    models = {1.0: whole}
    for keep in KEEP:
        removed = choose_least_important({head: chance.random() for head in heads}, round((1 - keep) * len(heads)))
        models[keep] = Transformer(remove_heads(whole, removed)[0], VOCABULARY, VOCABULARY, 0)
    return {keep: model.eval() for keep, model in models.items()}


@torch.inference_mode()
def translate(model: Transformer) -> None:
    """Encode the sentences and decode as many pieces, one by one."""
    state = model.start(model.encode(*SOURCE))
    for _ in range(LENGTH):
        _, state = model.step(torch.full((SENTENCES,), 5), state)


@torch.inference_mode()
def score(model: Transformer) -> None:
    """Encode the sentences and score given translations, all pieces at once."""
    model.decode(*SOURCE, model.encode(*SOURCE))


def seconds(work: Callable[[Transformer], None], model: Transformer) -> float:
    began = time.perf_counter()
    work(model)
    return time.perf_counter() - began


SOURCE = pack([[*range(2, LENGTH + 1), 1]] * SENTENCES)

if __name__ == "__main__":
    models = make_models()
    for work in (translate, score):
        taken = [[seconds(work, model) for model in models.values()] for _ in range(ROUNDS)][WARM_UP:]
        for column, keep in enumerate(models):
            print(f"{work.__name__}, keep {keep}: {median(row[0] / row[column] for row in taken):.2f} times as fast")
