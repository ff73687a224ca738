"""Hugging Face `MarianMTModel.generate`.

Settings: batch (texts of about the same length), threads, early_stopping.
"""

from collections.abc import Sequence
from pathlib import Path

from contender_translate import Job, Setting, Translate, Translated, by_length, compete


def make(job: Job, setting: Setting) -> Translate:
    """As its documentation shows it, and in batches."""
    import torch
    from transformers import AutoTokenizer, MarianMTModel

    torch.set_num_threads(int(setting["threads"]))
    folder = Path(job.model)
    source = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    separate = folder / "target"
    target = AutoTokenizer.from_pretrained(separate, local_files_only=True) if separate.is_dir() else source
    model = MarianMTModel.from_pretrained(folder, local_files_only=True).eval()
    options = {"num_beams": job.beam, "length_penalty": job.alpha, "max_length": None}
    options["early_stopping"] = bool(setting.get("early_stopping", False))

    def some(texts: list[str]) -> list[Translated]:
        inputs = source(texts, return_tensors="pt", padding=True, return_token_type_ids=False)
        limit = job.limit or inputs["input_ids"].shape[1] + job.extra
        outputs = model.generate(**inputs, **options, max_new_tokens=limit)[:, 1:]
        pieces = (outputs != model.config.pad_token_id).sum(1).tolist()
        return [*map(Translated, target.batch_decode(outputs, skip_special_tokens=True), pieces)]

    @torch.inference_mode()
    def translate(texts: Sequence[str]) -> list[Translated]:
        found: dict[int, Translated] = {}
        lengths = source(list(texts), return_attention_mask=False, return_token_type_ids=False)["input_ids"]
        for batch in by_length(lengths, int(setting["batch"])):
            found |= dict(zip(batch, some([texts[index] for index in batch]), strict=True))
        return [found[index] for index in range(len(texts))]

    return translate


if __name__ == "__main__":
    compete(make)
