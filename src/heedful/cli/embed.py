"""`heedful embed`"""

import json
import sys
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from heedful.cli import console
from heedful.cli.common import (
    DeviceOption,
    JsonOption,
    ModelArgument,
    check_output,
    open_model,
    parse_device,
    read_texts,
)
from heedful.errors import ConfigError, counted, require_library

if TYPE_CHECKING:
    from heedful.embedding.embedder import Embedder

_FORMATS = (".npy", ".npz", ".safetensors")


def embed(
    model: ModelArgument,
    texts: Annotated[
        list[str] | None,
        typer.Argument(metavar="[TEXT]...", help="Texts; default, and -: standard input, a text a line."),
    ] = None,
    file: Annotated[Path | None, typer.Option(help="A file instead, one text a line, plain or .gz.")] = None,
    similar: Annotated[
        str | None, typer.Option(metavar="QUERY", help="Print the texts that are most similar to this one instead.")
    ] = None,
    top: Annotated[int, typer.Option(min=1, help="With --similar: print this many texts.")] = 10,
    out: Annotated[
        Path | None, typer.Option(help="Write the vectors into this file instead: .npy, .npz or .safetensors.")
    ] = None,
    as_json: JsonOption = False,
    device: DeviceOption = "auto",
) -> None:
    """Turn texts into vectors that are close to each other if the texts are similar.

    Imported sentence-transformers have learnt this; other models of BERT's family give the mean of their features.
    Prints the numbers of each vector; with --similar the cosine of each text, best first.
    """
    if out and (similar is not None or as_json):
        raise ConfigError(f"--out {out} writes vectors; leave out {'--json' if as_json else '--similar'}")
    if out and out.suffix not in _FORMATS:
        raise ConfigError(f"--out {out}: name a file that ends in {', '.join(_FORMATS[:-1])} or {_FORMATS[-1]}")
    check_output(out, "--out", [file])
    run, source = open_model(model), read_texts(texts or [], file)
    require_library("turning a text into a vector", "torch")
    from heedful.data.stream import read_windows
    from heedful.device import use_threads
    from heedful.embedding.embedder import Embedder

    embedder = Embedder.from_run(run, parse_device(device))
    use_threads(0)
    if embedder.notice:
        console.say(f"note: {embedder.notice}")
    windows = read_windows(source)
    if similar is not None or out:
        everything = [text for window in windows for text in window]
        if out:
            _write_vectors(embedder, everything, out)
        else:
            _print_ranking(embedder, similar or "", everything, top, as_json)
        return
    index = 0
    for window in windows:
        for text, vector in zip(window, embedder.embed(window).tolist(), strict=True):
            if as_json:
                console.out(json.dumps({"index": index, "text": text, "vector": vector}, ensure_ascii=False))
            else:
                console.out(" ".join(f"{value:.7g}" for value in vector))
            index += 1
        sys.stdout.flush()  # the reader of a pipe may wait for this text


def _print_ranking(embedder: "Embedder", query: str, texts: Sequence[str], top: int, as_json: bool) -> None:
    for found in embedder.rank(query, texts)[:top]:
        if as_json:
            facts = {"index": found.index, "text": found.text, "similarity": found.similarity}
            console.out(json.dumps(facts, ensure_ascii=False))
        else:
            console.out(f"{found.similarity:.4f}\t{found.text}")


def _write_vectors(embedder: "Embedder", texts: Sequence[str], out: Path) -> None:
    """Write the vectors as an array; .npz has the texts too."""
    import numpy as np

    from heedful.storage.files import save_tensors, write_atomically

    vectors = embedder.embed(texts)
    real, buffer = out.resolve(), BytesIO()  # write through links
    if out.suffix == ".safetensors":
        import torch

        save_tensors(real, {"vectors": torch.from_numpy(vectors)}, {"format": "pt"})
    else:
        if out.suffix == ".npy":
            np.save(buffer, vectors)
        else:
            np.savez(buffer, vectors=vectors, texts=np.array(texts, dtype=np.str_))
        write_atomically(real, buffer.getvalue())
    console.say(f"{out}: {counted(len(texts), 'vector', ',')} of {embedder.dimensions} numbers")
