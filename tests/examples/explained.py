"""Models that have learnt nothing, for pages whose text and numbers do not depend on it."""

import torch

from heedful.config import ModelConfig, SearchConfig
from heedful.models.transformer import Transformer
from heedful.storage.model_names import find_model
from heedful.storage.run_folder import RunFolder
from heedful.translation.translator import Translator


def untrained(config: ModelConfig, search: SearchConfig) -> Translator:
    """A model of this shape with random weights, with the vocabulary of a built-in model."""
    tokenizers = RunFolder.open(find_model("en-de")).tokenizers()
    torch.manual_seed(7)
    size = tokenizers.target.vocabulary_size
    model = Transformer(config, size, size, tokenizers.target.pad_id).eval()
    return Translator.from_model(model, tokenizers, search)
