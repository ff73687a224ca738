"""JoeyNMT through `predict`, which its `translate` command calls; `tokenizers` around it, as its own are others.

Settings: batch (sentences), threads. It runs in the environment of its own that `peers.py` made.
"""

from collections.abc import Sequence
from pathlib import Path

from contender_ctranslate2 import pieces_of, read_tokenizers
from contender_translate import Job, Setting, Translate, Translated, by_length, compete


def make(job: Job, setting: Setting) -> Translate:
    """A text is given as its pieces with spaces between them, the longest first, so that batches are even."""
    import torch
    from joeynmt.hub_interface import _from_pretrained
    from joeynmt.prediction import predict

    torch.set_num_threads(int(setting["threads"]))
    source, target = read_tokenizers(Path(job.model))
    ids = target.get_vocab(with_added_tokens=True)
    model, data, args = _from_pretrained(Path(job.model))
    options = args.test._replace(batch_size=int(setting["batch"]), beam_size=job.beam, beam_alpha=job.alpha)
    options = options._replace(max_output_length=job.limit or -1)  # -1: one and a half times the source

    def search(lines: Sequence[str]) -> list[list[str]]:
        data.reset_cache()
        for line in lines:
            data.set_item(line)
        given = {"device": args.device, "n_gpu": 0, "normalization": "none", "autocast": args.autocast}
        return predict(model, data, args=options, **given)[3]

    def translate(texts: Sequence[str]) -> list[Translated]:
        pieces = [one[:-1] for one in pieces_of(source, texts)]
        order = [index for (index,) in by_length(pieces, 1) if pieces[index]]  # it refuses what is empty
        found = search([" ".join(pieces[index]) for index in order])
        decoded = target.decode_batch([[ids[piece] for piece in one] for one in found])
        made = dict(zip(order, map(Translated, decoded, map(len, found)), strict=True))
        return [made.get(index, Translated("", 0)) for index in range(len(texts))]

    return translate


if __name__ == "__main__":
    compete(make)
