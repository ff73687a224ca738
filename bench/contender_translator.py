"""heedful translates, through its library. Setting: engine, and threads where they are to be others than its own."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

from contender_translate import Job, Setting, Translate, Translated, compete

if TYPE_CHECKING:
    from heedful.translation.engines import EngineChoice


def make(job: Job, setting: Setting) -> Translate:
    """Nothing is told to it but the beam: the rest stands in the folder."""
    from heedful import Translator

    if "threads" in setting:
        import torch

        torch.set_num_threads(int(setting["threads"]))
    translator = Translator.load(job.model, engine=cast("EngineChoice", setting["engine"]))

    def translate(texts: Sequence[str]) -> list[Translated]:
        found = translator.translate(texts, beam=job.beam)
        return [Translated(one.text, len(one.alternatives[0].pieces) if one.alternatives else 0) for one in found]

    return translate


if __name__ == "__main__":
    compete(make)
