r"""How often the language of a text is detected, and how often a text in none of the languages is taken for one.

.venv/bin/python bench/detection.py --german FOLDER
.venv/bin/python bench/detection.py --german FOLDER --languages en de fr --json

Sentences of Tatoeba that are not in the tables, messages of Horizon, sentences of spaCy's languages, lines of code,
digits and random letters are cut to one word, to three words, left whole, and joined to paragraphs. English, French and
Spanish sentences and the messages are downloaded; FOLDER has test.de. `--languages` are the languages that are served
(default: those of the built-in models). `--calibrate` also prints how often each confidence is right, and `--fit` the
constants of the detector that make the log loss of the other half of the texts smallest. For both, 80 % of the texts
are taken to be in a served language, and all kinds and lengths to be equally frequent.
"""

import argparse
import ast
import inspect
import json
import random
import re
import sys
import zipfile
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from itertools import product
from math import log
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "scripts"))

from messages import HORIZON, read_messages  # noqa: E402
from package_index import Archive, cache_folder, fetch_archive, of_zip  # noqa: E402
from splits import split  # noqa: E402
from tatoeba import english_french  # noqa: E402
from trigrams import HELD_OUT, english_spanish  # noqa: E402

from heedful.data.pairs import read_lines  # noqa: E402
from heedful.storage.model_names import built_in_models  # noqa: E402
from heedful.text.languages import Calibration, Detector, find_words, judge, known_languages  # noqa: E402

SPACY = Archive(
    project="spacy",
    name="spacy-3.7.5-cp311-cp311-manylinux_2_17_x86_64.manylinux2014_x86_64.whl",
    sha256="3dad4853950a2fe6c7a0bdfd791a762d1f8cedd2915c4ae41b2e0ca3a850eefc",
    size="7 MB",
)
SERVED = ("en", "de", "fr", "es")
HORIZON_OTHERS = ("it", "pt_BR", "pl_PL", "cs", "tr_TR", "id", "ru", "ja", "zh_Hans", "ko_KR", "eo")
SETS = (SERVED, SERVED[:3])  # to fit to
NONE = ""  # the language of code, digits and gibberish
EACH = 400  # texts of each kind and length, at most
LENGTHS = ("1 word", "3 words", "sentence", "paragraph")
SENTENCES = 5  # of a paragraph
EXPECTED = 0.8  # the share of texts in a served language, for which confidence is calibrated


@dataclass(frozen=True, slots=True)
class Sample:
    """A text, its language, and what it is."""

    text: str
    language: str  # NONE: no language
    kind: str  # the code of a served language, "other languages", "code", "digits" or "gibberish"
    length: str


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--german", type=Path, required=True, metavar="FOLDER", help="with test.de")
    parser.add_argument("--languages", nargs="+", metavar="CODE", help="those that are served")
    parser.add_argument("--calibrate", action="store_true", help="also print how often each confidence is right")
    parser.add_argument("--fit", action="store_true", help="print the constants of least log loss on the other half")
    parser.add_argument("--json", action="store_true", help="print the rows as JSON")
    options = parser.parse_args()
    served = options.languages or sorted({code for name in built_in_models() for code in name.split("-")})
    samples = read_samples(options.german, cache_folder())
    if options.fit:
        fit(samples[1::2])
        return
    samples = samples[::2]
    detector = Detector(known_languages())
    rows = tabulate_results(detector, samples, served)
    if options.json:
        print(json.dumps(rows))
        return
    print(f"served: {', '.join(served)}\n\n| text | length | texts | right | wrong | of these, sure | unknown |")
    print("|---|---|---|---|---|---|---|")
    for row in rows:
        shares = (f"{row[name]:.1f} %" for name in ("right", "wrong", "wrong and sure", "unknown"))
        print(f"| {row['kind']} | {row['length']} | {row['texts']} | {' | '.join(shares)} |")
    if options.calibrate:
        print_calibration(detector, samples, served)


# The texts


def read_samples(german: Path, cache: Path) -> list[Sample]:
    """All texts, in an order that has nothing to do with their kinds."""
    chance = random.Random(7)
    french = split(english_french(cache), HELD_OUT, HELD_OUT).test
    spanish = split(english_spanish(cache), HELD_OUT, HELD_OUT).test
    sentences = {
        "en": [english for english, _ in french],
        "de": list(read_lines(german / "test.de")),
        "fr": [text for _, text in french],
        "es": [text for _, text in spanish],
    }
    horizon = fetch_archive(HORIZON, cache)
    found: list[Sample] = []
    for code in SERVED:
        for texts in (sentences[code], read_horizon(horizon, code)):
            found += cut(texts, code, code, chance)
    others = {code: read_horizon(horizon, code) for code in HORIZON_OTHERS}
    for name, texts in {**others, **read_spacy(fetch_archive(SPACY, cache))}.items():
        found += cut(texts, name[:2], "other languages", chance, EACH // len(HORIZON_OTHERS))
    # One word of code is a word of a language.
    found += [sample for sample in cut(read_code(), NONE, "code", chance) if sample.length in LENGTHS[2:]]
    digits = ["".join(chance.choice("0123456789 .,:-/%+") for _ in range(chance.randint(1, 20))) for _ in range(EACH)]
    found += [Sample(text, NONE, "digits", "sentence") for text in digits]
    found += cut([gibberish(chance) for _ in range(EACH)], NONE, "gibberish", chance)
    chance.shuffle(found)
    return found


def cut(texts: Iterable[str], language: str, kind: str, chance: random.Random, each: int = EACH) -> list[Sample]:
    """Texts of every length: one and three words from anywhere, whole ones, and several joined."""
    whole = list(dict.fromkeys(text for text in texts if find_words(text)))
    chance.shuffle(whole)
    glue = "\n" if kind == "code" else " "
    found = []
    for length in LENGTHS:
        match length:
            case "paragraph":
                several = [glue.join(whole[at : at + SENTENCES]) for at in range(0, len(whole) - SENTENCES, SENTENCES)]
            case "sentence":
                several = [text for text in whole if len(text.split()) > 3]
            case _:
                several = [part for text in whole if find_words(part := window(text, int(length[0]), chance))]
        found += [Sample(text, language, kind, length) for text in list(dict.fromkeys(several))[:each]]
    return found


def window(text: str, size: int, chance: random.Random) -> str:
    """So many words of a text, from any place; empty if it has fewer."""
    words = text.split()
    start = chance.randint(0, max(0, len(words) - size))
    return " ".join(words[start : start + size]).strip('.,;:!?¿¡"()«»') if len(words) >= size else ""


def read_horizon(wheel: Path, locale: str) -> list[str]:
    """Messages of Horizon without placeholders; its English ones are the sources of the French."""
    name = f"openstack_dashboard/locale/{'fr' if locale == 'en' else locale}/LC_MESSAGES/django.po"
    pairs = read_messages(of_zip(wheel, name), name)
    texts = [pair[0 if locale == "en" else 1] for pair in pairs if locale == "en" or pair[0] != pair[1]]
    return [text for text in texts if not re.search(r"[%{<]", text)]


def read_spacy(wheel: Path) -> dict[str, list[str]]:
    """The example sentences of each language that is not served."""
    found: dict[str, list[str]] = {}
    with zipfile.ZipFile(wheel) as zipped:
        for name in zipped.namelist():
            match = re.fullmatch(r"spacy/lang/(\w+)/examples\.py", name)
            if match and match[1] not in (*SERVED, "xx"):
                tree = ast.parse(zipped.read(name))
                lists = [node.value for node in tree.body if isinstance(node, ast.Assign)]
                found[f"{match[1]} examples"] = [text for one in lists for text in ast.literal_eval(one)]
    return found


def read_code() -> list[str]:
    """Lines of Python's library and of the pages' JavaScript, without comments and docstrings."""
    python = [inspect.getsource(module) for module in (argparse, inspect, json.decoder, random, zipfile)]
    scripts = [path.read_text(encoding="utf-8") for path in sorted((ROOT / "src/heedful").rglob("*.js"))]
    bare = [re.sub(r'"""(?:.|\n)*?"""|/\*(?:.|\n)*?\*/', "", text) for text in (*python, *scripts)]
    lines = (line.strip() for text in bare for line in text.splitlines())
    return [line for line in lines if len(line) > 3 and not line.startswith(("#", "//", "*", '"', "'"))]


def gibberish(chance: random.Random) -> str:
    """Words of random letters, or of letters that lie side by side on a keyboard."""
    rows = ("qwertyuiop", "asdfghjkl", "zxcvbnm", "abcdefghijklmnopqrstuvwxyz")
    words = []
    for _ in range(chance.randint(1, 8)):
        row = chance.choice(rows)
        words.append("".join(chance.choice(row) for _ in range(chance.randint(3, 10))))
    return " ".join(words)


# The results


def tabulate_results(
    detector: Detector, samples: Sequence[Sample], served: Sequence[str]
) -> list[dict[str, str | int | float]]:
    """The percentages of each kind and length; a text in no served language is right if it is unknown."""
    groups: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for sample in samples:
        found = detector.detect(sample.text, served)
        named = "" if found.recognition == "unknown" else found.shares[0][0]
        expected = sample.language if sample.language in served else ""
        outcome = ("right" if expected else "unknown") if named == expected else "wrong" if named else "unknown"
        groups.setdefault((sample.kind, sample.length), []).append((outcome, found.recognition))
    order = [(kind, length) for kind in dict.fromkeys((*SERVED, *(kind for kind, _ in groups))) for length in LENGTHS]
    rows: list[dict[str, str | int | float]] = []
    for key in (key for key in order if key in groups):
        own = groups[key]
        share = 100 / len(own)
        counts = {name: share * sum(outcome == name for outcome, _ in own) for name in ("right", "wrong", "unknown")}
        sure = share * sum(outcome == "wrong" and recognition == "sure" for outcome, recognition in own)
        rows.append({"kind": key[0], "length": key[1], "texts": len(own), **counts, "wrong and sure": sure})
    return rows


def weigh_kinds(samples: Sequence[Sample], served: Sequence[str]) -> list[float]:
    """The weight of each text; they add up to 1, and those of the texts in a served language to `EXPECTED`."""
    keys = [(sample.language in served, sample.kind, sample.length) for sample in samples]
    sizes, kinds = Counter(keys), Counter(inside for inside, _, _ in set(keys))
    return [(EXPECTED if key[0] else 1 - EXPECTED) / kinds[key[0]] / sizes[key] for key in keys]


def print_calibration(detector: Detector, samples: Sequence[Sample], served: Sequence[str]) -> None:
    """How often the first language is right, by its confidence."""
    bins: dict[int, list[tuple[float, float, float]]] = {}
    for sample, weight in zip(samples, weigh_kinds(samples, served), strict=True):
        code, share = detector.detect(sample.text, served).shares[0]
        bins.setdefault(min(9, int(10 * share)), []).append(
            (weight, weight * share, weight * (code == sample.language))
        )
    print("\n| confidence | share of texts | mean confidence | right |\n|---|---|---|---|")
    off = 0.0
    for number, own in sorted(bins.items()):
        weight, share, hits = (sum(column) for column in zip(*own, strict=True))
        off += abs(share - hits)
        rates = f"{100 * weight:.1f} % | {100 * share / weight:.1f} | {100 * hits / weight:.1f} %"
        print(f"| {10 * number} to {10 * number + 10} | {rates} |")
    print(f"\nexpected calibration error: {100 * off:.1f} %")


# The constants


def fit(samples: Sequence[Sample]) -> None:
    """Print the constants of least log loss, for three and for four served languages; each kind of text counts once."""
    detector = Detector(known_languages())
    evidence = [detector.weigh(sample.text) for sample in samples]
    weights = [weight for served in SETS for weight in weigh_kinds(samples, served)]
    cases = [(served, sample, found) for served in SETS for sample, found in zip(samples, evidence, strict=True)]

    def measure_loss(constants: Calibration) -> float:
        total = 0.0
        for (served, sample, found), weight in zip(cases, weights, strict=True):
            if found.letters:
                shares = dict(judge(found, served, constants).shares)
                hit = shares[sample.language] if sample.language in served else 1 - sum(shares.values())
                total -= weight * log(max(hit, 1e-9))
        return total / len(SETS)

    best, least = Calibration(), measure_loss(Calibration())
    for step in (1.5, 1.2, 1.1):
        improved = True
        while improved:
            improved = False
            for field, factor in product(fields(Calibration), (step, 1 / step)):
                tried = replace(best, **{field.name: getattr(best, field.name) * factor})
                if tried.signed_code < 1 and (loss := measure_loss(tried)) < least - 1e-5:
                    best, least, improved = tried, loss, True
        print(f"log loss {least:.4f}: {best}", flush=True)


if __name__ == "__main__":
    main()
