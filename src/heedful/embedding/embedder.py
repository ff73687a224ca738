"""The `Embedder`: a model that turns a text into a vector, so that texts of similar meaning are close to each other."""

import os
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from heedful.config import Device, Pooling
from heedful.data.batch import pack
from heedful.data.labelled_corpus import TextEncoder
from heedful.data.stream import batches_by_length
from heedful.device import choose_device
from heedful.errors import ConfigError, DataError
from heedful.kernels.matmul import fast_reading
from heedful.models.bert import BERT, summarise
from heedful.process_memory import keep_freed_memory
from heedful.storage.model_names import find_model
from heedful.storage.run_folder import RunFolder
from heedful.tasks import find_task

_BATCH_TOKENS = 2000
_NOT_LEARNT = {
    "masked": "has learnt to find hidden tokens and not to compare texts",
    "sequence": "has learnt labels and not to compare texts, so texts of one label are close to each other",
    "tokens": "has learnt to tag words and not to compare texts",
    "none": "does not say that it has learnt to compare texts",
}


@dataclass(frozen=True, slots=True)
class SimilarText:
    """A text, its place among those that were compared, and the cosine between its vector and that of the query."""

    text: str
    index: int
    similarity: float


class Embedder:
    """A model that turns texts into vectors.

    >>> embedder = Embedder.load("runs/minilm")   # doctest: +SKIP
    >>> embedder.embed(["A man rides a horse."]).shape   # doctest: +SKIP
    (1, 384)
    """

    def __init__(self, model: BERT, encoder: TextEncoder, notice: str = "") -> None:
        keep_freed_memory()
        self.model = model
        self.encoder = encoder
        self.notice = notice  # why cosines of these vectors may say little; empty for a model that has learnt them

    @classmethod
    def load(cls, model: str | os.PathLike[str], device: Device = "auto") -> "Embedder":
        """Load a run folder. Nothing in it is executed, and a damaged folder is an error."""
        return cls.from_run(RunFolder.open(find_model(model)), device)

    @classmethod
    def from_run(cls, run: RunFolder, device: Device = "auto") -> "Embedder":
        """Like `load`, for a folder that is already open."""
        task = find_task(run.experiment().task)
        if not task.encoder or task.reads_pictures:
            raise ConfigError(
                f"{run.path} is a model for {task.name}, which gives no vectors of texts; import a "
                "sentence-transformers folder, or train a model with: heedful train --text FILE --objective masked"
            )
        model = run.model()
        if not isinstance(model, BERT):  # never: the tasks have no other family; this is for the type checker
            raise ConfigError(f"{run.path} holds a {type(model).__name__}, which gives no vectors of texts")
        encoder = TextEncoder(run.tokenizers().source, "classification", model.config.max_positions)
        imported = run.about().get("imported")
        learnt = isinstance(imported, dict) and imported.get("compares_texts") is True
        notice = "" if learnt else f"{run.path} {_NOT_LEARNT[model.config.head]}; its vectors are means of its features"
        return cls(model.to(choose_device(device)), encoder, notice)

    @property
    def dimensions(self) -> int:
        """The length of a vector."""
        return self.model.config.d_model

    @property
    def pooling(self) -> Pooling:
        """The summary of a text's features: what an imported model has learnt, and the mean of all other models."""
        return self.model.config.pooling if self.model.config.head == "none" else "mean"

    def embed(self, texts: Sequence[str]) -> Float[np.ndarray, "texts dimensions"]:
        """The vector of each text. It does not depend on the other texts; long texts are cut."""
        if isinstance(texts, str):  # a string is a sequence too, of its characters
            raise DataError("embed() takes a list of texts, but got one string; write embed([text])")
        ids = [question.ids for (question,) in self.encoder(texts)]
        vectors = np.empty((len(ids), self.dimensions), np.float32)
        for batch in batches_by_length(range(len(ids)), ids, 1, _BATCH_TOKENS):
            vectors[batch] = self._embed([ids[index] for index in batch]).numpy()
        return vectors

    def rank(self, query: str, texts: Sequence[str]) -> list[SimilarText]:
        """The texts from the most to the least similar to the query; equal ones stay in their order."""
        vectors = self.embed([query, *texts])
        lengths = np.maximum(np.linalg.norm(vectors, axis=1), np.finfo(np.float32).tiny)
        cosines = (vectors[1:] @ vectors[0]) / (lengths[1:] * lengths[0])
        order = np.argsort(-cosines, kind="stable")
        return [SimilarText(texts[index], int(index), float(cosines[index])) for index in order]

    @torch.inference_mode()
    def _embed(self, sentences: Sequence[Sequence[int]]) -> Float[Tensor, "sentences dimensions"]:
        device = next(self.model.parameters()).device
        ids, lengths = (tensor.to(device) for tensor in pack(sentences))
        with fast_reading():
            vectors = summarise(self.model.encode(ids, lengths), self.pooling)
        return (F.normalize(vectors) if self.model.config.unit_length else vectors).cpu()
