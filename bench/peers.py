"""Other programs that are measured through their own commands, each in its own environment under `.bench/`.

    .venv/bin/python bench/peers.py install

They share heedful's PyTorch. Their own requirements conflict with it, so they are installed without them, with only the
packages that training needs.
"""

import argparse
import json
import re
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from race import Contender
from workload import Sentences, Shape, make_sentences, words, write_text

ENVIRONMENTS = Path(__file__).resolve().parent.parent / ".bench"
_VALID_PAIRS = 10
_FOREVER = 1_000_000_000

# fairseq 0.12.2 uses instances of dataclasses as defaults of other dataclasses. Python 3.11 refuses that if they cannot
# be hashed, so this makes them hashable. Nothing that runs during training is changed.
_HASHABLE_DATACLASSES = '''\
"""Dataclasses can be hashed, as before Python 3.11."""

import dataclasses

_process_class = dataclasses._process_class


def _with_hash(cls, *args, **kwargs):
    made = _process_class(cls, *args, **kwargs)
    if made.__hash__ is None:
        made.__hash__ = object.__hash__
    return made


dataclasses._process_class = _with_hash
'''


@dataclass(frozen=True, slots=True)
class Peer:
    """A program, the packages that it needs besides PyTorch, and its training command."""

    name: str
    packages: tuple[str, ...]
    shim: str  # code that its Python runs first
    prepare: Callable[[Path, Shape, Sentences], list[str]]  # writes its files and returns the arguments
    update_of: Callable[[str, float], float | None]

    @property
    def folder(self) -> Path:
        """The folder of its environment."""
        return ENVIRONMENTS / self.name

    @property
    def installed(self) -> bool:
        """Whether `install` has finished."""
        return (self.folder / "installed").exists()


def command_peers(folder: Path, shape: Shape, threads: int) -> tuple[list[Contender], dict[str, str]]:
    """The installed peers, with their files in the folder; and a sentence for each of the others."""
    sentences = make_sentences(shape)
    contenders: list[Contender] = []
    absent: dict[str, str] = {}
    for peer in PEERS:
        if not peer.installed:
            absent[peer.name] = (
                f"{peer.name} is not installed; install it with: python bench/peers.py install {peer.name}"
            )
            continue
        home = folder / peer.name
        home.mkdir()
        command = [str(peer.folder / "bin" / "python"), *peer.prepare(home, shape, sentences)]
        # They have no option for threads.
        environment = {"OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}
        contenders.append(
            Contender(peer.name, "shipped", command, environment, peer.update_of, sentences.tokens_per_target_token)
        )
    return contenders, absent


def fairseq_command(home: Path, shape: Shape, sentences: Sentences) -> list[str]:
    """`fairseq-train` on text files, with a dictionary of all words."""
    write_text(sentences, home, "train.en-de", ("en", "de"))
    write_text(_few(sentences), home, "valid.en-de", ("en", "de"))
    for language in ("en", "de"):
        (home / f"dict.{language}.txt").write_text("".join(f"{word} 1\n" for word in words(shape)), encoding="utf-8")
    sizes = [
        f"--{side}-{size}"
        for side in ("encoder", "decoder")
        for size in (
            f"embed-dim={shape.d_model}",
            f"ffn-embed-dim={shape.d_ff}",
            f"attention-heads={shape.num_heads}",
            f"layers={shape.layers}",
        )
    ]
    return [
        *("-m", "fairseq_cli.train", str(home), "--dataset-impl=raw", "--source-lang=en", "--target-lang=de"),
        *("--arch=transformer", "--share-all-embeddings", *sizes, f"--dropout={shape.dropout}", "--cpu"),
        *("--criterion=label_smoothed_cross_entropy", f"--label-smoothing={shape.label_smoothing}"),
        *("--optimizer=adam", "--adam-betas=(0.9, 0.98)", "--adam-eps=1e-9"),
        *("--lr=5e-4", "--lr-scheduler=inverse_sqrt", "--warmup-updates=4000"),
        *(f"--max-tokens={shape.batch_tokens}", f"--max-update={_FOREVER}", "--no-save", "--disable-validation"),
        *("--log-format=json", "--log-interval=1"),
    ]


def fairseq_update(line: str, _: float) -> float | None:
    """The target tokens of the update that this line reports."""
    found = re.search(r'train_inner .*"wpb": "([0-9.]+)"', line)
    return float(found[1]) if found else None


def _few(sentences: Sentences) -> Sentences:
    """A validation set, which both programs require although they never validate here."""
    return Sentences(sentences.sources[:_VALID_PAIRS], sentences.targets[:_VALID_PAIRS])


def joeynmt_command(home: Path, shape: Shape, sentences: Sentences) -> list[str]:
    """`python -m joeynmt train` with a configuration in JSON, which is also YAML."""
    training = {"learning_rate": 0.0005, "learning_rate_warmup": 4000, "logging_freq": 1, "validation_freq": _FOREVER}
    config = write_joeynmt_config(home, shape, sentences, _few(sentences), training)
    return ["-m", "joeynmt", "train", str(config), "--skip-test"]


def write_joeynmt_config(
    home: Path, shape: Shape, train: Sentences, valid: Sentences, training: Mapping[str, object]
) -> Path:
    """Text, vocabulary and configuration of a training with Adam and an inverse square root, validated greedily."""
    write_text(train, home, "train", ("en", "de"))
    write_text(valid, home, "valid", ("en", "de"))
    special = ("<unk>", "<pad>", "<s>", "</s>")
    (home / "words.txt").write_text("\n".join([*special, *words(shape)]) + "\n", encoding="utf-8")
    text = {"level": "word", "voc_file": str(home / "words.txt"), "max_length": 1000}
    stack = {
        **{"type": "transformer", "num_layers": shape.layers, "num_heads": shape.num_heads, "dropout": shape.dropout},
        **{"hidden_size": shape.d_model, "ff_size": shape.d_ff, "layer_norm": "post"},
        "embeddings": {"embedding_dim": shape.d_model, "scale": True, "dropout": shape.dropout},
    }
    config = {
        **{"name": "race", "model_dir": str(home / "model"), "use_cuda": False, "num_workers": 0},
        "data": {
            **{"train": str(home / "train"), "dev": str(home / "valid"), "dataset_type": "plain"},
            **{"src": {"lang": "en", **text}, "trg": {"lang": "de", **text}},
        },
        "testing": {"beam_size": 1, "batch_size": 10, "batch_type": "sentence"},
        "training": {
            **{"optimizer": "adam", "adam_betas": [0.9, 0.98], "learning_rate_min": 0.0},
            **{"scheduling": "warmupinversesquareroot", "label_smoothing": shape.label_smoothing},
            **{"normalization": "tokens", "batch_type": "token", "batch_size": shape.batch_tokens},
            **{"epochs": _FOREVER, "updates": _FOREVER, **training},
        },
        "model": {"tied_embeddings": True, "tied_softmax": True, "encoder": stack, "decoder": stack},
    }
    path = home / "config.yaml"
    path.write_text(json.dumps(config, indent=1), encoding="utf-8")
    return path


def joeynmt_update(line: str, seconds: float) -> float | None:
    """The target tokens of the update that this line reports, as a rate since the previous line."""
    found = re.search(r"Step: .*Tokens per Sec: +([0-9]+)", line)
    return float(found[1]) * seconds if found else None


PEERS = (
    Peer(
        "fairseq",
        (
            *("fairseq==0.12.2", "hydra-core==1.0.7", "omegaconf==2.0.6", "antlr4-python3-runtime==4.8"),
            *("bitarray==3.12.3", "importlib-resources==7.1.0", "cffi==2.1.1", "pycparser==3.12"),
        ),
        _HASHABLE_DATACLASSES,
        fairseq_command,
        fairseq_update,
    ),
    Peer(
        "joeynmt",
        (
            *("joeynmt==2.3.0", "sentencepiece==0.2.2", "subword-nmt==0.3.8", "importlib-metadata==8.5.0"),
            *("zipp==4.1.2", "plotly==7.1.0", "narwhals==2.28.0", "pandas==3.1.1"),
        ),
        "",
        joeynmt_command,
        joeynmt_update,
    ),
)


def install(peer: Peer) -> None:
    """Create its environment from scratch."""
    (peer.folder / "installed").unlink(missing_ok=True)
    subprocess.run([sys.executable, "-m", "venv", "--clear", peer.folder], check=True)
    own = subprocess.run(
        [peer.folder / "bin" / "python", "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()
    # PyTorch and everything else that is missing here is found there.
    (Path(own) / "shared.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    if peer.shim:
        (Path(own) / "sitecustomize.py").write_text(peer.shim, encoding="utf-8")
    pip = [str(peer.folder / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    # Later versions refuse the metadata of omegaconf 2.0.6.
    subprocess.run([*pip, "pip<24.1"], check=True)
    subprocess.run([*pip, "--no-deps", *peer.packages], check=True)
    (peer.folder / "installed").touch()


def main() -> None:
    parser = argparse.ArgumentParser(description="Install the programs that heedful is compared with.")
    parser.add_argument("action", choices=["install"])
    names = [peer.name for peer in PEERS]
    parser.add_argument("peers", nargs="*", metavar="peer", help=f"{' or '.join(names)}; none: all")
    options = parser.parse_args()
    for unknown in set(options.peers) - set(names):
        parser.error(f"unknown peer: {unknown}; there are {' and '.join(names)}")
    for peer in PEERS:
        if peer.name in (options.peers or names):
            print(f"installing {peer.name} in {peer.folder} ...", flush=True)
            try:
                install(peer)
            except subprocess.CalledProcessError as error:
                sys.exit(
                    f"{peer.name} could not be installed: {Path(error.cmd[0]).name} exited with code {error.returncode}"
                )


if __name__ == "__main__":
    main()
