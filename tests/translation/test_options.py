"""Options of a translator: terms, samples, ensembles, confidence and retries, from Python and the command line."""

import json
import math
import re
import shutil
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from typing import Any

import pytest
import torch
import toy
from hypothesis import given, settings
from hypothesis import strategies as st
from sacrebleu.metrics.chrf import CHRF
from torch import Tensor, nn

from heedful.config import SearchConfig, TextConfig
from heedful.decoding.torch_engine import TorchEngine
from heedful.errors import ConfigError, DataError, FolderError
from heedful.formats.export import export
from heedful.metrics.chrf import score_agreement
from heedful.models.seq2seq import Seq2Seq
from heedful.storage.run_folder import RunFolder, Tokenizers
from heedful.tasks.copying import COPY
from heedful.text.constraints import Constraints
from heedful.text.tokenizer_training import learn_tokenizer
from heedful.translation.pipeline import has_loop
from heedful.translation.translator import Translator

TEXTS = toy.sentences(12, seed=77)
WORDS = list(toy.dictionary())


@pytest.fixture(scope="module")
def translator(trained: Path) -> Translator:
    return Translator.load(trained / "run")


# Terms and prefixes


def test_a_translation_contains_the_terms_of_its_source(translator: Translator) -> None:
    glossary = {WORDS[0]: "Zürich-West", WORDS[1]: "two words", WORDS[2]: WORDS[2]}
    texts = [*TEXTS, f"{WORDS[0]} {WORDS[1]} {WORDS[2]}", f"{WORDS[3]} ({WORDS[0]})", "x" + WORDS[0]]
    plain = translator.translate(texts, beam=3)
    held = 0
    for text, before, found in zip(
        texts,
        plain,
        translator.translate(texts, beam=3, n_best=2, constraints=Constraints(glossary, max_loss=inf)),
        strict=True,
    ):
        wanted = [target for source, target in glossary.items() if re.search(rf"(?<!\w){source}(?!\w)", text)]
        held += len(wanted)
        if not wanted:
            assert found.text == before.text
        for alternative in found.alternatives:
            assert all(re.search(rf"(?<!\w){re.escape(term)}(?!\w)", alternative.text) for term in wanted)
    assert held >= 6


def test_a_term_that_damages_a_translation_is_given_up_and_named(translator: Translator) -> None:
    text = f"{WORDS[0]} {WORDS[1]} {WORDS[0]}"
    (free,) = translator.translate([text])
    glossary = {WORDS[0]: "Zürich-West", WORDS[1]: WORDS[1]}
    forced, guarded, named = (
        translator.translate([text], constraints=constraints)[0]
        for constraints in (
            Constraints(glossary, max_loss=inf),
            Constraints({WORDS[0]: "Zürich-West"}),
            Constraints(glossary),
        )
    )
    assert forced.text.count("Zürich-West") == 2
    assert forced.failed_terms == ()
    assert (guarded.text, guarded.score) == (free.text, free.score)
    assert guarded.failed_terms == (f"{WORDS[0]} = Zürich-West",)
    assert WORDS[1] in named.text.split()  # a name is never given up
    assert "Zürich-West" not in named.text
    assert named.failed_terms == guarded.failed_terms


def test_a_translation_that_has_its_terms_is_the_free_one(translator: Translator) -> None:
    text = TEXTS[0]
    (free,) = translator.translate([text])
    terms = dict(zip(text.split(), toy.translated(text).split(), strict=True))
    assert set(free.text.split()) == set(terms.values())
    (held,) = translator.translate([text], constraints=Constraints(terms))
    assert held == free


def test_translations_begin_with_the_prefix(translator: Translator) -> None:
    for search in (SearchConfig(beam=1), SearchConfig(beam=3), SearchConfig(method="sample")):
        found = translator.translate(TEXTS[:4], search=search, constraints=Constraints(prefix="Ja, und"))
        assert all(translation.text.startswith("Ja, und") for translation in found)


def test_a_term_that_does_not_fit_is_refused(translator: Translator) -> None:
    search = replace(translator.search, max_extra=0)
    with pytest.raises(
        DataError, match=r"^the required words take \d+ pieces, but the translation of this text has room"
    ):
        translator.translate(
            [WORDS[0]], search=search, constraints=Constraints({WORDS[0]: "a long term of many words"})
        )


# Sampling


def test_samples_depend_only_on_the_seed_and_the_text(translator: Translator) -> None:
    search = SearchConfig(method="sample", temperature=3.0, max_extra=5)

    def draw(texts: list[str], seed: int, n_best: int = 2) -> list[list[str]]:
        found = translator.translate(texts, search=replace(search, seed=seed), n_best=n_best)
        return [[alternative.text for alternative in translation.alternatives] for translation in found]

    together = draw(TEXTS, 4)
    assert [draw([text], 4)[0] for text in TEXTS] == together
    assert [several[:2] for several in draw(TEXTS[::-1], 4, n_best=3)] == together[::-1]
    assert draw(TEXTS, 5) != together
    assert len({text for several in together for text in several}) > len(TEXTS)


def test_mbr_takes_the_sample_that_agrees_most_with_the_others(translator: Translator) -> None:
    search = SearchConfig(method="sample", temperature=2.0, max_extra=5, seed=3)
    drawn = translator.translate(TEXTS[:3], search=search, n_best=9)
    chosen = translator.translate(TEXTS[:3], search=replace(search, method="mbr", samples=9), n_best=2)
    for several, best in zip(drawn, chosen, strict=True):
        texts = [alternative.text for alternative in several.alternatives]
        means = [sum(CHRF().sentence_score(text, [other]).score for other in texts) / 9 for text in texts]
        assert best.text == texts[means.index(max(means))]
        assert best.score == pytest.approx(max(means))
        assert [alternative.score for alternative in best.alternatives] == sorted(
            (alternative.score for alternative in best.alternatives), reverse=True
        )


@settings(deadline=None, max_examples=30)
@given(texts=st.lists(st.text("ab ü.", max_size=12), min_size=1, max_size=5))
def test_agreement_is_sacrebleus_chrf(texts: list[str]) -> None:
    metric = CHRF()
    expected = [sum(metric.sentence_score(text, [other]).score for other in texts) / len(texts) for text in texts]
    assert score_agreement(texts) == pytest.approx(expected, abs=1e-9)


# Ensembles


def test_an_ensemble_of_one_model_twice_translates_like_the_model(trained: Path, translator: Translator) -> None:
    twice = Translator.load(trained / "run", others=[trained / "run"])
    assert isinstance(twice.engine, TorchEngine)
    assert len(twice.engine.models) == 2
    for ours, alone in zip(twice.translate(TEXTS), translator.translate(TEXTS), strict=True):
        assert ours.text == alone.text
        assert ours.score == pytest.approx(alone.score, abs=1e-4)


def test_checkpoints_translate_alone_and_as_an_ensemble(trained: Path) -> None:
    run = trained / "run"
    early, late = sorted((run / "checkpoints").glob("step-*"))[-2:]
    alone = [Translator.load(folder) for folder in (early, late)]
    both = Translator.load(late, others=[early])
    assert isinstance(both.engine, TorchEngine)
    ids = both.encode(TEXTS)
    targets = both.tokenizers.target.encode_all(TEXTS)
    mean = [
        [math.log((math.exp(one) + math.exp(other)) / 2) for one, other in zip(*pair, strict=True)]
        for pair in zip(*(one.engine.score(ids, targets) for one in alone), strict=True)
    ]
    for ours, expected in zip(both.engine.score(ids, targets), mean, strict=True):
        assert ours == pytest.approx(expected, abs=1e-4)
    assert alone[0].engine.score(ids, targets) != alone[1].engine.score(ids, targets)
    with pytest.raises(FolderError, match="no run folder"):
        Translator.load(run / "checkpoints" / "step-99999999")


def test_an_export_of_the_run_is_not_taken_for_its_checkpoints(trained: Path, tmp_path: Path) -> None:
    pytest.importorskip("ctranslate2", reason="needs CTranslate2")
    shutil.copytree(trained / "run", tmp_path / "run")
    export(RunFolder.open(tmp_path / "run"), "ctranslate2")
    checkpoint = sorted((tmp_path / "run" / "checkpoints").glob("step-*"))[-1]
    assert Translator.load(tmp_path / "run").engine.name == "ctranslate2"
    assert Translator.load(checkpoint).engine.name == "torch"
    with pytest.raises(ConfigError, match="has no model for the ctranslate2 engine"):
        Translator.load(checkpoint, engine="ctranslate2")
    with pytest.raises(ConfigError, match="give the export of a checkpoint a folder"):
        export(RunFolder.open(checkpoint), "ctranslate2")
    export(RunFolder.open(checkpoint), "ctranslate2", tmp_path / "out")
    assert RunFolder(tmp_path / "out").about()["exported"]["parent_weights"].startswith("checkpoint of step")  # type: ignore[index]


def test_the_scores_of_an_ensemble_are_not_saved_as_those_of_the_run(trained: Path, tmp_path: Path) -> None:
    shutil.copytree(trained / "run", tmp_path / "run")
    files = ("--source", trained / "test.en", "--reference", trained / "test.de")
    before = RunFolder(tmp_path / "run").about()
    ran = toy.run("evaluate", tmp_path / "run", "--with", trained / "run", *files, "--json")
    assert ran.code == 0, ran.err
    assert RunFolder(tmp_path / "run").about() == before
    alone = toy.run("evaluate", tmp_path / "run", *files, "--json")
    assert json.loads(ran.out)["scores"][0]["value"] == json.loads(alone.out)["scores"][0]["value"]


def test_an_ensemble_with_different_vocabularies_is_refused(trained: Path, tmp_path: Path) -> None:
    run = RunFolder(trained / "run")
    other = RunFolder.create(tmp_path / "other")
    tokenizer = learn_tokenizer(["some other words"], TextConfig(kind="bytes", vocabulary_size=258))
    other.begin(run.experiment())
    other.describe(run.experiment(), Tokenizers(tokenizer, tokenizer))
    with pytest.raises(FolderError, match=r"cannot translate together: their source tokenizers differ; train the"):
        Translator.load(trained / "run", others=[tmp_path / "other"])


# Confidence


def test_confidence_comes_from_the_probabilities_of_a_words_pieces(translator: Translator) -> None:
    for translation in translator.translate(TEXTS[:5], n_best=2, confidence=True):
        for alternative in translation.alternatives:
            assert alternative.confidence is not None
            assert [entry.word for entry in alternative.confidence] == alternative.text.split()
            assert all(0 < entry.least <= entry.mean <= 1 for entry in alternative.confidence)
            whole = sum(math.log(entry.least) for entry in alternative.confidence)  # a word is one piece here
            assert alternative.log_prob - 1e-3 < whole + 1e-3
    assert translator.translate(TEXTS[:1])[0].alternatives[0].confidence is None


# Loops


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [
        ([], False),
        ([3] * 7, False),
        ([9, 8, *[3] * 8], True),
        ([3, 4] * 3, False),
        ([5, *[3, 4] * 4, 6], True),
        ([3, 4, 5] * 3 + [6], False),
        ([3, 4, 5] * 4, True),
        (list(range(16)) * 4, True),
        (list(range(17)) * 4, False),
        ([3, 3, 4, 4, 5, 5, 6, 6, 3, 3, 4, 4], False),
    ],
)
def test_a_loop_repeats_many_times_in_a_row(tokens: list[int], expected: bool) -> None:
    assert has_loop(tokens) == expected


@dataclass(frozen=True, slots=True)
class Nothing:
    """The state of a model without memory."""

    def select(self, rows: Tensor) -> "Nothing":
        return self


class Stammerer(Seq2Seq[Any, Nothing]):
    """Gives its favourite word 0.9 at every step, and EOS and another word 0.05 each."""

    def __init__(self, favourite: int, other: int, eos: int, vocabulary: int) -> None:
        super().__init__()
        self.pad_id = 0
        chances = torch.full((vocabulary,), 1e-9)
        chances[[favourite, eos, other]] = torch.tensor([0.9, 0.06, 0.04])
        self.logits = nn.Parameter(chances.log())

    @property
    def layers(self) -> list[nn.Module]:
        return []

    @property
    def output_weight(self) -> Tensor:
        return self.logits[:, None]

    def encode(self, source: Tensor, lengths: Tensor, sentence_keys: Tensor | None = None) -> None:
        return None

    def features(self, target_in: Tensor, lengths: Tensor, memory: None, sentence_keys: Tensor | None = None) -> Tensor:
        return torch.ones(len(target_in), 1)

    def start(self, memory: None) -> Nothing:
        return Nothing()

    def step(self, tokens: Tensor, state: Nothing) -> tuple[Tensor, Nothing]:
        return self.logits.expand(len(tokens), -1), state


@pytest.mark.parametrize("beam", [1, 3])
def test_an_output_that_loops_is_decoded_again(beam: int) -> None:
    tokenizer = learn_tokenizer(["ja nein", "ja"], TextConfig(kind="words", vocabulary_size=300))
    yes, no = (tokenizer.encode(word)[0] for word in ("ja", "nein"))
    model = Stammerer(yes, no, tokenizer.eos_id, tokenizer.vocabulary_size)
    search = SearchConfig(beam=beam, max_extra=20, alpha=1.0)
    stammering = Translator.from_model(model, Tokenizers(tokenizer, tokenizer), search)

    (found,) = stammering.translate(["nein"])
    assert found.redone
    assert (found.alternatives[0].finished, found.alternatives[0].repeats) == (True, False)
    (left,) = stammering.translate(["nein"], search=replace(search, guard=False))
    assert not left.redone
    assert left.alternatives[0].repeats
    assert left.text.split() == ["ja"] * (len(left.pieces) - left.alternatives[0].finished)
    (parsed,) = Translator.from_model(model, Tokenizers(tokenizer, tokenizer), search, COPY).translate(["nein"])
    assert (parsed.redone, parsed.alternatives[0].repeats) == (False, False)
    (echo,) = stammering.translate(["ja " * 30])
    assert not echo.alternatives[0].repeats


# The command line


def test_the_command_takes_terms_samples_and_several_models(trained: Path, tmp_path: Path) -> None:
    terms = toy.write_lines(tmp_path / "terms.tsv", [f"{WORDS[0]}\tZürich"])
    run = trained / "run"
    held = toy.run("translate", run, f"{WORDS[0]} ACME", "--glossary", terms, "--keep", "ACME", "--with", run)
    assert (held.code, "ACME" in held.lines[0].split()) == (0, True)
    assert f"term not used, because it does not fit: {WORDS[0]} = Zürich\n" in held.err
    lines = toy.write_lines(tmp_path / "in.txt", [WORDS[0], f"{WORDS[1]} {WORDS[0]}", WORDS[2]])
    many = toy.run("translate", run, "--input", lines, "--glossary", terms)
    assert f"term not used in 2 texts, because it does not fit: {WORDS[0]} = Zürich\n" in many.err
    listed = toy.run("translate", run, WORDS[0], "--glossary", terms, "--json")
    assert json.loads(listed.out)["failed_terms"] == [f"{WORDS[0]} = Zürich"]
    alone = toy.run("translate", "Hello.", "--to", "de", "--glossary", terms)
    assert alone.code == 2
    assert "its terms belong to a pair of languages; name the pair with --from and --to, or name a model" in alone.err
    begun = toy.run("translate", run, WORDS[0], "--prefix", "Nun")
    assert begun.lines[0].startswith("Nun")
    options = ("--method", "sample", "--seed", "5", "--n-best", "3", "--set", "search.temperature=4.0")
    drawn = [toy.run("translate", run, TEXTS[0], *options).lines for _ in range(2)]
    assert drawn[0] == drawn[1]
    assert len(drawn[0]) == 3
    sure = json.loads(toy.run("translate", run, TEXTS[0], "--json", "--confidence").out)
    assert [entry["word"] for entry in sure["alternatives"][0]["confidence"]] == sure["text"].split()
    assert "confidence" not in json.loads(toy.run("translate", run, TEXTS[0], "--json").out)["alternatives"][0]


def test_given_pairs_are_scored(trained: Path, tmp_path: Path, translator: Translator) -> None:
    found = translator.translate(TEXTS)
    source = toy.write_lines(tmp_path / "s.en", TEXTS)
    target = toy.write_lines(tmp_path / "t.de", [translation.text for translation in found])
    ran = toy.run("score", trained / "run", "--source", source, "--target", target)
    expected = [translation.alternatives[0].log_prob for translation in found]
    assert [float(line.split("\t")[0]) for line in ran.lines] == pytest.approx(expected, abs=1e-3)
    pieces = [len(translation.pieces) for translation in found]
    means = [total / count for total, count in zip(expected, pieces, strict=True)]
    assert [float(line.split("\t")[1]) for line in ran.lines] == pytest.approx(means, abs=1e-3)
    perplexity = math.exp(-sum(expected) / sum(pieces))
    assert ran.err.splitlines()[-1] == f"perplexity {perplexity:.4f} over {sum(pieces)} pieces of 12 pairs"

    *lines, total = map(
        json.loads, toy.run("score", trained / "run", "--source", source, "--target", target, "--json").lines
    )
    assert total["total"]["perplexity"] == pytest.approx(perplexity, rel=1e-4)
    assert lines[3]["pieces"] == list(found[3].pieces)
    assert sum(lines[3]["log_probs"]) == pytest.approx(expected[3], abs=1e-3)
    assert [entry["word"] for entry in lines[3]["words"]] == found[3].text.split()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--confidence"], "--confidence adds numbers to every word, which only --json can show; add --json"),
        (["--keep", " "], "--keep is empty; give the term to keep"),
        (["--method", "wild"], "search.method must be one of"),
        (["--set", "search.temperature=0"], "search.temperature must be above 0, but is 0.0 instead"),
        (["--set", "search.top_p=1.5"], "search.top_p must be above 0 and at most 1, but is 1.5 instead"),
        (["--set", "search.groups=3", "--beam", "4"], "search.beam is 4, which 3 groups do not divide; change"),
        (["--method", "sample", "--keep", "x"], "search.method is 'sample' and search.groups is 1, but only plain"),
    ],
)
def test_impossible_options_are_reported_in_a_sentence(trained: Path, options: list[str], message: str) -> None:
    ran = toy.run("translate", trained / "run", "x", *options)
    assert ran.code == 2
    assert ran.err.startswith(f"heedful: {message}")
