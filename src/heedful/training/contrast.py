"""The gradient of CLIP's loss, which tells each pair of an update apart from all others of it."""

from concurrent.futures import ThreadPoolExecutor

import torch
from torch import Tensor

from heedful.data.batch import Batch
from heedful.data.captions import find_matches
from heedful.kernels.threads import divide_threads
from heedful.models.clip import CLIP, contrastive_loss
from heedful.nn.dropout import set_dropout_share
from heedful.nn.noise import sentence_keys
from heedful.process_memory import keep_freed_memory
from heedful.training.gradients import Objective, Update, add_up_gradients, share_weights
from heedful.training.schedule import dropout_share


class ContrastiveGradients:
    """Compute the gradients of an update whose parts are read at the same time, each on one thread.

    The loss needs the vectors of all parts. So each worker encodes its part, the loss gives a gradient for each vector,
    and each worker sends those of its part back through its copy of the model. The result is that of one whole batch.
    """

    def __init__(self, model: CLIP, objective: Objective, workers: int) -> None:
        keep_freed_memory()
        self._objective = objective
        self._models = [model, *(share_weights(model) for _ in range(workers - 1))]
        self._threads = ThreadPoolExecutor(workers, thread_name_prefix="worker")

    def __call__(self, update: Update, step: int) -> float:
        """See `Gradients`."""
        model, precision = self._models[0], self._objective.precision
        model.limit_scale()
        with divide_threads(len(self._models)):
            working = self._models[: len(update.parts)]
            encoded = list(self._threads.map(lambda one, part: self._encode(one, part, step), working, update.parts))
            pictures, texts = (torch.cat([part[side].detach() for part in encoded]) for side in (0, 1))
            pictures.requires_grad_()
            texts.requires_grad_()
            loss = contrastive_loss(model.compare(pictures, texts), find_matches(update.parts)) / update.target_tokens
            precision.backward(loss)
            sizes = [len(part.indices) for part in update.parts]
            gradients = zip(
                *(each.grad.split(sizes) for each in (pictures, texts) if each.grad is not None), strict=True
            )
            list(self._threads.map(_send_back, encoded, gradients))
        add_up_gradients(self._models)
        return loss.item()

    def _encode(self, model: CLIP, batch: Batch, step: int) -> tuple[Tensor, Tensor]:
        """The vectors of the pictures and of the texts of a part."""
        objective = self._objective
        model.train(self._models[0].training)
        if objective.dropout_warmup:
            set_dropout_share(model, dropout_share(step, objective.dropout_warmup))
        # Other devices have their own random generator; see `Dropout`.
        keys = sentence_keys(objective.seed, step, batch.indices) if batch.indices.device.type == "cpu" else None
        with objective.precision.cast():
            pictures = model.encode(batch.source, batch.source_lengths, keys)
            return pictures, model.encode_texts(batch.target_in, batch.target_lengths, keys)


def _send_back(encoded: tuple[Tensor, Tensor], gradients: tuple[Tensor, Tensor]) -> None:
    torch.autograd.backward(encoded, [part.to(own.dtype) for own, part in zip(encoded, gradients, strict=True)])
