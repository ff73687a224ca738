"""Every code block of the README and the documentation runs as it is written, on small made-up files.

Blocks of one page run one after another in one folder. Only two things differ from a reader's machine: trainings make
a few updates of a tiny model, and no browser opens. `NOT_RUN` lists commands that cannot run here, with the reasons.
"""

import gzip
import re
import shlex
import shutil
import subprocess
import sys
import webbrowser
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import toy
from caption_examples import write_captioned
from opus_examples import opus_folder
from picture_examples import write_mnist, write_pictures
from transformers_examples import bert_folder, clip_folder, gpt2_folder, sentence_folder, vit_folder

from heedful.config import Experiment
from heedful.storage.run_folder import PRETRAINING
from heedful.studies.synthetic import trees
from heedful.text.trees import write_tree
from heedful.training import text_first
from heedful.training import train as training
from heedful.training.run import resume_run, start_run

for library in ("ctranslate2", "docx", "polib", "onnxruntime", "transformers"):
    pytest.importorskip(library, reason=f"needs {library}")

ROOT = Path(__file__).resolve().parents[2]
REPORTS = ("results.md", "benchmarks.md")  # the commands behind their figures need real corpora, and hours
PAGES = [
    page
    for page in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(ROOT.glob("docs/**/*.md")))
    if page.name not in REPORTS
]
FENCE = re.compile(r"^```(sh|python)\n(.*?)^```", re.MULTILINE | re.DOTALL)

NOT_RUN = {
    r"^(pip|make|git|source|npm)\b|^\.venv/bin/(pytest|mypy|ruff) ": "sets up or checks the repository",
    r"^(for|do|done|mkdir|gunzip)\b|^ +gunzip": "belongs to a download",
    r"^torchrun |^#|^if |^ +srun|^else|^fi$|^code=|^\[ |^exit |^RUN=": "belongs to a cluster",
    r"heedful serve|--serve|^curl |^heedful key ": "needs a server, which tests/serve starts",
    r"tail -f|^tensorboard ": "never ends",
    r"^heedful study (?!.*--dry-run)": "takes minutes; tests/studies runs the studies",
    r"heedful train recipes/paper-": "trains a large model",
    r"^\.venv/bin/python (bench/|scripts/builtin)": "takes minutes; tests/bench and tests/scripts run them",
}

STEPS, MORE_STEPS = 4, 6  # of a training, and of one that was resumed
ICELANDIC = (
    "1150.x 1210.thorlakur 1250.x 1300.x 1400.viglundur 1450.x 1470.x 1525.georgius 1540.x 1610.x 1675.magnus 1680.x "
    "1700.x 1830.x 1850.x 1882.x 1888.grimur 1900.x 2008.x"
)  # names that the recipe of two treebanks asks for
PIECES = 300  # of a vocabulary


@dataclass(frozen=True, slots=True)
class Block:
    """A code block, and where it is."""

    place: str
    language: str
    code: str


def blocks_of(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    return [
        Block(f"{page.relative_to(ROOT)}:{text[: found.start()].count(chr(10)) + 1}", found[1], found[2])
        for found in FENCE.finditer(text)
    ]


def lines_of(block: Block) -> list[str]:
    return [line for line in block.code.replace("\\\n", " ").splitlines() if line.strip()]


def reason_not_to_run(line: str) -> str:
    return next((reason for pattern, reason in NOT_RUN.items() if re.search(pattern, line)), "")


# The files that the pages name


def write_pairs(folder: Path, name: str, first: int, count: int) -> None:
    """Write `name.en` and `name.de` with these pairs of a small language."""
    people = [("A man", "Ein Mann"), ("The woman", "Die Frau"), ("A child", "Ein Kind"), ("My dog", "Mein Hund")]
    verbs = [("rides", "reitet"), ("sees", "sieht"), ("finds", "findet"), ("likes", "mag"), ("buys", "kauft")]
    things = [("a horse", "ein Pferd"), ("the house", "das Haus"), ("two dogs", "zwei Hunde"), ("a file", "eine Datei")]
    places = [("", ""), (" today", " heute"), (" in the street", " auf der Straße"), (" again", " wieder")]
    pairs = [
        tuple(f"{who[side]} {does[side]} {what[side]}{where[side]}." for side in (0, 1))
        for who, does, what, where in product(people, verbs, things, places)
    ]
    chosen = [pairs[7 * number % len(pairs)] for number in range(first, first + count)]  # 7 and 320 share no factor
    for side, suffix in enumerate(("en", "de")):
        toy.write_lines(folder / f"{name}.{suffix}", [pair[side] for pair in chosen])


def write_files(folder: Path) -> None:
    for number, name in enumerate(("train", "my", "general", "test", "val", "my-val", "chat")):
        write_pairs(folder, name, 40 * number, 200 if name == "train" else 30)
    reference = (folder / "test.de").read_text(encoding="utf-8")
    for name in ("test.2.de", "old.de", "other.de", "other-program.de"):
        (folder / name).write_text(reference, encoding="utf-8")
    for name in ("new.de", "newer.de"):
        (folder / name).write_text(reference.replace("Hund", "Hündin"), encoding="utf-8")
    english, german = ((folder / f"train.{side}").read_text(encoding="utf-8").splitlines() for side in ("en", "de"))
    toy.write_lines(folder / "pairs.tsv", [f"{one}\t{other}" for one, other in zip(english, german, strict=True)])
    toy.write_lines(folder / "terms.tsv", ["dog\tHündin", "house\tHaus"])
    (folder / "news.en.gz").write_bytes(gzip.compress((folder / "test.en").read_bytes()))
    words = [f"{word}\t{' '.join(word)}" for word in ("HEED", "FUL", "ATTEND", "TEND", "HEEDFUL", "TENTED") * 5]
    for name in ("words.dict", "test.dict"):
        toy.write_lines(folder / name, words)
    (folder / "strings.po").write_text(
        'msgid ""\nmsgstr "Content-Type: text/plain; charset=UTF-8\\n"\n\nmsgid "Save the file."\nmsgstr ""\n',
        encoding="utf-8",
    )
    (folder / "de.po").write_text(
        'msgid ""\nmsgstr "Content-Type: text/plain; charset=UTF-8\\nLanguage: de\\n"\n'
        + "".join(f'\nmsgid "{one}"\nmsgstr "{other}"\n' for one, other in zip(english, german, strict=True)),
        encoding="utf-8",
    )
    for name in ("mono.en", "mono.de"):
        (folder / name).write_text("\n".join(english), encoding="utf-8")
    for name in ("book.txt", "other.txt", "letters.txt", "books/one.txt", "books/two.txt"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("\n".join(english), encoding="utf-8")
    toy.write_lines(
        folder / "tickets.tsv", [f"{('invoice', 'praise')[n % 2]}\t{text}" for n, text in enumerate(english)]
    )
    toy.write_lines(folder / "new.tsv", ["invoice\tA man buys a horse.", "praise\tThe woman likes the house."])
    tags = "\n".join(
        f"{word}\t{('NOUN', 'VERB')[len(word) % 2]}" if word else "" for line in english for word in [*line.split(), ""]
    )
    (folder / "words.conllu").write_text(tags + "\n", encoding="utf-8")
    import docx

    letter = docx.Document()
    letter.add_paragraph("A man rides a horse.")
    letter.save(str(folder / "letter.docx"))


def write_images(folder: Path) -> None:
    for seed, name in enumerate(("pictures", "others")):
        write_pictures(folder / name, 6, seed)
    write_mnist(folder / "mnist")
    write_captioned(folder, names=("captions.tsv", "photos"))
    write_captioned(folder, each=2, seed=2, names=("new-captions.tsv", "new-photos"))
    shutil.copy(folder / "pictures/across/1.png", folder / "cat.png")
    shutil.copy(folder / "pictures/down/0.jpg", folder / "dog.jpg")


def write_corpora(folder: Path) -> None:
    """Corpora in the places that recipes and pages name."""
    for place in (folder / "data" / "multi30k", folder / "PATH" / "TO" / "multi30k"):
        place.mkdir(parents=True)
        for number, name in enumerate(("train", "val", "test_2016_flickr")):
            write_pairs(place, f"{name}.lc.norm.tok", 50 * number, 40)
    for place in (folder / "data" / "tinyshakespeare", folder / "PATH" / "TO" / "tinyshakespeare"):
        place.mkdir()
        shutil.copy(folder / "book.txt", place / "input.txt")
    made = [write_tree(tree) for tree in trees(60, 1)]
    for treebank in ("data/treebank-wsj-sample", "PATH/TO/wsj", "PATH/TO/BOTH/treebank-wsj-sample"):
        (folder / treebank).mkdir(parents=True)
        for file in ("0001", "0002", "0003", "0004", "0013", "0103"):
            toy.write_lines(folder / treebank / f"wsj_{file}.mrg", made)
    (folder / "PATH/TO/BOTH/icepahc").mkdir()
    for name in ICELANDIC.split():
        toy.write_lines(folder / "PATH/TO/BOTH/icepahc" / f"{name}.psd", made[:2])


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with all files, run folders and recipes that the pages name; tests copy it."""
    folder = tmp_path_factory.mktemp("reader")
    write_files(folder)
    write_images(folder)
    write_corpora(folder)
    shutil.copytree(ROOT / "recipes", folder / "recipes")
    run = folder / "runs" / "en-de"
    # The pages name the fourth layer, and export to Hugging Face needs the paper's norm and positions.
    network = ("model.d_model=32", "model.d_ff=64", "model.num_heads=4", "model.decoder_layers=4")
    options = (
        "train.max_steps=60",
        "train.warmup_steps=20",
        "train.batch_tokens=400",
        f"text.vocabulary_size={PIECES}",
    )
    with toy.plain_log():
        ran = toy.run(
            *("train", "--source", folder / "train.en", "--target", folder / "train.de", "--out", run),
            *toy.settings(
                *network,
                *options,
                "model.norm=post",
                "model.positions=sinusoidal",
                "model.encoder_layers=1",
                "text.kind=bpe",
            ),
        )
    assert ran.code == 0, ran.err
    for name in ("en-de-2", "en-de-3", "base", "big", "old", "new", "mine"):
        shutil.copytree(run, folder / "runs" / name)
    opus_folder(folder / "opus-mt-en-de", init_std=0.1)  # int8 is too coarse for larger ones
    gpt2_folder(folder / "gpt2")
    bert_folder(folder / "bert-folder", "BertForSequenceClassification")
    sentence_folder(folder / "minilm-folder")
    vit_folder(folder / "vit-folder")
    clip_folder(folder / "clip-folder")
    return folder


# Running


@contextmanager
def short_trainings() -> Iterator[None]:
    start, resume = start_run, resume_run

    def start_short(run: Any, experiment: Experiment, *rest: Any) -> Any:
        train = replace(experiment.train, max_steps=min(STEPS, experiment.train.max_steps), warmup_steps=1)
        if not train.init or Path(train.init).name == PRETRAINING:  # which was planned for a larger one
            small = replace(experiment.model, d_model=32, d_ff=64, num_heads=2, encoder_layers=1, decoder_layers=1)
            # The text here has fewer pieces than the corpus of a recipe.
            size = min(PIECES, experiment.text.vocabulary_size)
            experiment = replace(experiment, model=small, text=replace(experiment.text, vocabulary_size=size))
        return start(run, replace(experiment, train=train), *rest)

    def resume_short(folder: Path, settings: Any, *rest: Any) -> Any:
        train = settings.get("train", {})
        limited = {**train, "max_steps": MORE_STEPS} if "max_steps" in train else train
        return resume(folder, {**settings, "train": limited} if limited else settings, *rest)

    with (
        # Blocks of a page may be alternatives that train in one folder.
        mock.patch.object(training, "check_free", lambda folder: shutil.rmtree(folder, ignore_errors=True)),
        mock.patch.object(training, "start_run", start_short),
        mock.patch.object(text_first, "start_run", start_short),
        mock.patch.object(training, "resume_run", resume_short),
        toy.plain_log(),
    ):
        yield


def run_shell(block: Block) -> None:
    for line in lines_of(block):
        if reason_not_to_run(line):
            continue
        program, *words = shlex.split(line, comments=True)
        if program == "heedful":
            ran = toy.run(*words)
            assert ran.code == 0, f"{block.place}: {line}\n{ran.err}"
        else:
            assert program == ".venv/bin/python", f"{block.place}: {line}"
            script, *arguments = words
            subprocess.run([sys.executable, ROOT / script, *arguments], check=True)


def run_python(block: Block) -> None:
    exec(compile(block.code, block.place, "exec"), {"__name__": "__main__"})


@pytest.mark.parametrize(
    "page", [page for page in PAGES if blocks_of(page)], ids=lambda page: str(page.relative_to(ROOT))
)
def test_the_code_blocks_of_a_page_run_as_they_are_written(
    page: Path, files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(files, tmp_path / "reader")
    monkeypatch.chdir(tmp_path / "reader")
    with ExitStack() as stack:
        stack.enter_context(short_trainings())
        stack.enter_context(mock.patch.object(webbrowser, "open", return_value=True))
        for block in blocks_of(page):
            match block.language:
                case "sh":
                    run_shell(block)
                case _:
                    run_python(block)


def test_every_reason_not_to_run_a_command_is_needed() -> None:
    lines = [line for page in PAGES for block in blocks_of(page) if block.language == "sh" for line in lines_of(block)]
    assert [pattern for pattern in NOT_RUN if not any(re.search(pattern, line) for line in lines)] == []
    run = [line for line in lines if not reason_not_to_run(line)]
    assert len(run) > len(lines) / 2
