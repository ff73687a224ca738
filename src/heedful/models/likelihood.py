"""The probability of given targets."""

from collections.abc import Sequence

import torch

from heedful.data.batch import pack
from heedful.models.seq2seq import AnySeq2Seq


@torch.inference_mode()
def token_log_probs(
    models: Sequence[AnySeq2Seq], sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]
) -> list[list[float]]:
    """The log-probability of each target token given the earlier ones; several models are averaged."""
    device, start = next(models[0].parameters()).device, models[0].pad_id
    source, source_lengths = (tensor.to(device) for tensor in pack(sources))
    target_in, lengths = (tensor.to(device) for tensor in pack([[start, *target[:-1]] for target in targets]))
    target_out = pack(targets)[0].to(device)
    each = []
    for model in models:
        logits = model.decode(target_in, lengths, model.encode(source, source_lengths))
        each.append(logits.float().log_softmax(dim=1).gather(1, target_out[:, None])[:, 0])
    mean = torch.stack(each).logsumexp(dim=0) - torch.tensor(float(len(models))).log()
    return [part.tolist() for part in mean.cpu().split(lengths.tolist())]
