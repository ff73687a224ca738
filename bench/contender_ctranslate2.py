"""CTranslate2 as its documentation shows it, with `tokenizers` around it.

Settings: inter_threads, intra_threads, max_batch_size, batch_type.
"""

from collections.abc import Sequence
from pathlib import Path

from contender_translate import Job, Setting, Translate, Translated, compete
from tokenizers import Tokenizer


def make(job: Job, setting: Setting) -> Translate:
    """`translate_batch` sorts by length and makes the batches."""
    import ctranslate2

    source, target = read_tokenizers(Path(job.model))
    ids = target.get_vocab(with_added_tokens=True)
    translator = ctranslate2.Translator(
        str(Path(job.model) / "ctranslate2"),
        inter_threads=setting["inter_threads"],
        intra_threads=setting["intra_threads"],
    )
    options = {"max_batch_size": setting.get("max_batch_size", 0), "batch_type": setting.get("batch_type", "examples")}
    if job.limit:
        options["max_decoding_length"] = job.limit

    def translate(texts: Sequence[str]) -> list[Translated]:
        results = translator.translate_batch(
            pieces_of(source, texts), beam_size=job.beam, length_penalty=job.alpha, **options
        )
        best = [result.hypotheses[0] for result in results]
        decoded = target.decode_batch([[ids[piece] for piece in one] for one in best])
        return [Translated(text, len(one) + (not job.limit)) for text, one in zip(decoded, best, strict=True)]

    return translate


def read_tokenizers(folder: Path) -> tuple[Tokenizer, Tokenizer]:
    """Of source and target, as they stand in a run folder."""
    if (joint := folder / "tokenizer.json").exists():
        tokenizer = Tokenizer.from_file(str(joint))
        return tokenizer, tokenizer
    source, target = (Tokenizer.from_file(str(folder / f"tokenizer.{side}.json")) for side in ("source", "target"))
    return source, target


def pieces_of(tokenizer: Tokenizer, texts: Sequence[str]) -> list[list[str]]:
    """With EOS. The ids are asked for, because that is the fastest way."""
    found = tokenizer.encode_batch_fast(list(texts))
    names = {number: str(tokenizer.id_to_token(number)) for encoding in found for number in encoding.ids}
    return [[names[number] for number in encoding.ids] for encoding in found]


if __name__ == "__main__":
    compete(make)
