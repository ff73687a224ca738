"""Imported BERTs keep their tokens and their numbers, with each head and without one."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import label_examples
import pytest
import torch
import toy
from transformers_examples import LABELS, bert_folder, sentence_folder, wordpieces

from heedful.classification.classifier import Classifier
from heedful.data.batch import pack
from heedful.errors import DataError, FolderError
from heedful.formats.import_model import import_model
from heedful.models.bert import BERT
from heedful.storage.files import load_tensors, save_tensors
from heedful.storage.run_folder import RunFolder

HEADS = ("BertModel", "BertForMaskedLM", "BertForPreTraining", "BertForSequenceClassification")
TEXTS = [
    "The cat sat. unable!",
    "Éñ Äé ÜBER über über ǅ",  # composed, with combining marks, and a title-case letter
    "中文の字 cat中文,",
    "ΣΊΣΥΦΟΣ İstanbul ẞ ﬁ Яї",
    "tab\tnew\nline \x00\x07 zero\u200bwidth nbsp\xa0x \ufffd soft\u00adhyphen",
    "🙂 don't - 3.14 $ ^ `a` _b_ «c» …",
    "x" * 100 + " " + "y" * 101,
    "[unused0] a##b ##at",
    "",
    "   ",
    "𠀀𝒜 한국어 اَلْ हिन्दी",
]


@pytest.fixture(scope="module")
def sorter(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return bert_folder(tmp_path_factory.mktemp("bert") / "theirs", "BertForSequenceClassification")


@pytest.mark.parametrize("architecture", [*HEADS, "BertForTokenClassification"])
def test_every_answer_is_that_of_transformers(architecture: str, tmp_path: Path) -> None:
    proof = import_model(bert_folder(tmp_path / "theirs", architecture), tmp_path / "run")
    assert (proof.sentences, proof.same) == (16, 16)
    assert proof.tokens == 16 if architecture == "BertForSequenceClassification" else proof.tokens > 250
    assert proof.largest < 1e-5
    assert toy.run("info", tmp_path / "run").code == 0


@pytest.mark.parametrize(
    "changes",
    [{"hidden_act": "gelu_new", "num_attention_heads": 1}, {"hidden_act": "relu", "intermediate_size": 24}],
    ids=["tanh", "relu"],
)
def test_other_networks_of_the_family_agree(changes: dict[str, Any], tmp_path: Path) -> None:
    proof = import_model(bert_folder(tmp_path / "theirs", "BertForMaskedLM", **changes), tmp_path / "run")
    assert proof.largest < 1e-5


@torch.no_grad()
def test_features_after_every_layer_are_those_of_transformers(tmp_path: Path) -> None:
    from transformers import BertModel

    import_model(bert_folder(tmp_path / "theirs"), tmp_path / "run")
    model = RunFolder.open(tmp_path / "run").model()
    assert isinstance(model, BERT)
    texts = [[3, 20, 31, 7, 4], [3, 9, 4], [3, *range(10, 40), 4]]
    found: list[torch.Tensor] = []
    for layer in model.layers:
        layer.register_forward_hook(lambda _module, _inputs, output: found.append(output))
    ids, lengths = pack(texts)
    model.encode(ids, lengths)
    theirs = BertModel.from_pretrained(tmp_path / "theirs").eval()
    for number, text in enumerate(texts):
        wanted = theirs(input_ids=torch.tensor([text]), output_hidden_states=True).hidden_states[1:]
        for ours, hidden in zip(found, wanted, strict=True):
            torch.testing.assert_close(ours.split(lengths.tolist())[number], hidden[0], rtol=1e-5, atol=1e-5)


# The tokenizer


def ids_of_both(folder: Path, out: Path) -> tuple[list[list[int]], list[list[int]]]:
    from transformers import AutoTokenizer

    theirs, ours = AutoTokenizer.from_pretrained(folder), RunFolder.open(out).tokenizers().source
    return [[ours.cls_id, *ids] for ids in ours.encode_all(TEXTS)], [theirs(text)["input_ids"] for text in TEXTS]


OPTIONS: dict[str, dict[str, Any]] = {
    "lower case": {},
    "capitals": {"do_lower_case": False},
    "accents stay": {"strip_accents": False},
    "accents go, capitals stay": {"do_lower_case": False, "strip_accents": True},
    "Chinese is not divided": {"tokenize_chinese_chars": False},
}


@pytest.mark.parametrize("file", ["tokenizer.json", "vocab.txt"])
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_tokens_are_those_of_transformers(options: dict[str, Any], file: str, sorter: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(sorter, tmp_path / "copy")
    changed = json.loads((copy / "tokenizer_config.json").read_text()) | options
    (copy / "tokenizer_config.json").write_text(json.dumps(changed))
    if file == "vocab.txt":
        (copy / "tokenizer.json").unlink()
        (copy / "vocab.txt").write_text("".join(f"{piece}\n" for piece in wordpieces()))
    import_model(copy, tmp_path / "run")
    ours, theirs = ids_of_both(copy, tmp_path / "run")
    assert ours == theirs
    assert len({tuple(ids) for ids in ours}) >= len(TEXTS) - 2  # the two empty texts are alike


def test_a_tokenizer_of_no_class_is_taken_as_it_is(sorter: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(sorter, tmp_path / "copy")
    (copy / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast"}))
    data = json.loads((copy / "tokenizer.json").read_text())
    data["normalizer"]["lowercase"] = False
    (copy / "tokenizer.json").write_text(json.dumps(data))
    import_model(copy, tmp_path / "run")
    ours, theirs = ids_of_both(copy, tmp_path / "run")
    assert ours == theirs


def test_a_special_piece_in_a_text_is_text(sorter: Path, tmp_path: Path) -> None:
    import_model(sorter, tmp_path / "run")
    tokenizer = RunFolder.open(tmp_path / "run").tokenizers().source
    assert tokenizer.encode("[SEP] [MASK]").count(tokenizer.eos_id) == 1
    assert tokenizer.mask_id not in tokenizer.encode("[MASK]")


# Use


@torch.no_grad()
def test_texts_are_classified_as_by_transformers(sorter: Path, tmp_path: Path) -> None:
    from transformers import AutoTokenizer, BertForSequenceClassification

    import_model(sorter, tmp_path / "run")
    theirs, tokenizer = (
        BertForSequenceClassification.from_pretrained(sorter).eval(),
        AutoTokenizer.from_pretrained(sorter),
    )
    texts = ["The cat sat.", "über 中文", "unable " * 30]
    for found in Classifier.load(tmp_path / "run").classify(texts):
        given = tokenizer(found.text, return_tensors="pt", truncation=True, max_length=40)
        wanted = theirs(**given).logits.softmax(-1)[0].tolist()
        assert [found.probabilities[label] for label in LABELS.values()] == pytest.approx(wanted, abs=1e-5)
    file = tmp_path / "labels.tsv"
    file.write_text("".join(f"{label}\tthe {label} sat\n" for label in LABELS.values()))
    ran = toy.run("evaluate", tmp_path / "run", "--labels", file)
    assert ran.code == 0, ran.err
    assert "macro F1" in ran.out


@torch.no_grad()
def test_words_are_tagged_as_by_transformers(tmp_path: Path) -> None:
    from transformers import AutoTokenizer, BertForTokenClassification

    folder = bert_folder(tmp_path / "theirs", "BertForTokenClassification", lower=False)
    import_model(folder, tmp_path / "run")
    theirs, tokenizer = BertForTokenClassification.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)
    words = ["The", "cat", "sat", "in", "Newyork", "."]
    given = tokenizer(words, is_split_into_words=True, return_tensors="pt")
    logits, owners = theirs(**given).logits[0].log_softmax(-1), given.word_ids()
    wanted = [logits[owners.index(number)] for number in range(len(words))]
    (found,) = Classifier.load(tmp_path / "run").probabilities(["\t".join(words)])
    torch.testing.assert_close(found.log(), torch.stack(wanted), rtol=1e-5, atol=1e-5)


def test_labels_can_start_from_an_imported_encoder(tmp_path: Path) -> None:
    import_model(bert_folder(tmp_path / "theirs"), tmp_path / "pre")
    file = label_examples.write_labels(tmp_path / "labels.tsv", 60)
    options = ("train.max_steps=3", "train.validate_every=3", "train.threads=1")
    settings = [part for setting in options for part in ("--set", setting)]
    with toy.plain_log():
        ran = toy.run("train", "--init", tmp_path / "pre", "--labels", file, "--out", tmp_path / "run", *settings)
    assert ran.code == 0, ran.err
    experiment = RunFolder.open(tmp_path / "run").experiment()
    assert (experiment.task, experiment.model.norm, experiment.model.positions) == ("classification", "post", "learned")
    assert toy.run("classify", tmp_path / "run", "hallo").code == 0


def test_a_model_of_vectors_is_not_trained_as_one(tmp_path: Path) -> None:
    file = label_examples.write_labels(tmp_path / "labels.tsv", 60)
    ran = toy.run("train", "--source", file, "--set", "task=embedding", "--out", tmp_path / "run")
    assert ran.code == 2
    assert "are imported, not trained" in ran.err


# Files of other ages and kinds


def test_names_of_older_files_are_known(sorter: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(sorter, tmp_path / "copy")
    ends = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}
    weights = load_tensors(copy / "model.safetensors")
    for new, old in ends.items():
        weights = {name.removesuffix(new) + old if name.endswith(new) else name: w for name, w in weights.items()}
    weights["bert.embeddings.position_ids"] = torch.arange(40)[None]
    save_tensors(copy / "model.safetensors", weights, {"format": "pt"})
    import_model(copy, tmp_path / "run")
    import_model(sorter, tmp_path / "other")
    first, second = (RunFolder.open(tmp_path / name).model().state_dict() for name in ("run", "other"))
    assert all(first[name].equal(second[name]) for name in second)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"position_embedding_type": "relative_key"}, "has position_embedding_type relative_key, but BERT .* absolute"),
        ({"is_decoder": True}, "has is_decoder True"),
        ({"layer_norm_eps": 1e-5}, "has layer_norm_eps 1e-05, but BERT as heedful has it has 1e-12"),
        ({"type_vocab_size": 1}, "has type_vocab_size 1"),
        ({"hidden_act": "tanh"}, "has hidden_act tanh; heedful knows gelu"),
        ({"hidden_act": ["gelu"]}, "has hidden_act"),
        ({"architectures": ["BertForQuestionAnswering"]}, "heedful imports BertModel, BertForMaskedLM"),
        ({"architectures": "BertModel"}, "heedful imports BertModel"),
        ({"problem_type": "multi_label_classification"}, "has problem_type multi_label_classification"),
        ({"id2label": {"0": "LABEL_0"}}, "has one output, which is a score and no label"),
        ({"id2label": {"0": "a", "1": "a", "2": "b"}}, "model.labels must be different names"),
        ({"hidden_size": 10**8}, r"holds [\d,]+ values, but config.json describes [\d,]+"),
        ({"hidden_size": "24"}, "model.d_model must be a whole number, but is '24' instead"),
        ({"num_attention_heads": 5}, "model.d_model is 24, which 5 heads do not divide"),
        ({"num_hidden_layers": 2}, r"has an unknown weight encoder.layer.2\.[\w.]+; it belongs"),
        ({"num_hidden_layers": 4}, r"has no weight encoder.layer.3\.[\w.]+; it belongs"),
        ({"max_position_embeddings": 32}, r"has positions.weight of shape \[40, 24\] instead of \[32, 24\]"),
        ({"max_position_embeddings": 2}, "reads 2 pieces of a text; it needs at least 3"),
        ({"max_position_embeddings": None}, "model.max_positions must be a whole number"),
    ],
    ids=str,
)
def test_a_configuration_that_does_not_fit_is_refused(
    change: dict[str, object], message: str, sorter: Path, tmp_path: Path
) -> None:
    copy = shutil.copytree(sorter, tmp_path / "copy")
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps(config | change))
    with pytest.raises(FolderError, match=message):
        import_model(copy, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def drop_tokenizer(folder: Path) -> None:
    (folder / "tokenizer.json").unlink()


def repeat_a_piece(folder: Path) -> None:
    drop_tokenizer(folder)
    (folder / "vocab.txt").write_text("[PAD]\n[SEP]\na\na\n")


def only_a_pickle(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


def odd_options(folder: Path) -> None:
    (folder / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": "yes"}))


def foreign_tokenizer(folder: Path) -> None:
    drop_tokenizer(folder)
    (folder / "vocab.txt").write_text("\n".join(wordpieces()))
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "BertJapaneseTokenizer"}))


def change_tokenizer(folder: Path, **changes: Any) -> None:
    data = json.loads((folder / "tokenizer.json").read_text())
    (folder / "tokenizer.json").write_text(json.dumps(data | changes))


def byte_pairs(folder: Path) -> None:
    change_tokenizer(folder, model={"type": "BPE", "vocab": {"a": 0}, "merges": []}, added_tokens=[])


def hostile_pattern(folder: Path) -> None:
    split = {"type": "Split", "pattern": {"Regex": "(a+)+$"}, "behavior": "Isolated", "invert": False}
    change_tokenizer(folder, pre_tokenizer=split)


def endless_words(folder: Path) -> None:
    model = json.loads((folder / "tokenizer.json").read_text())["model"]
    change_tokenizer(folder, model=model | {"max_input_chars_per_word": 10**9})


def no_beginning(folder: Path) -> None:
    data = json.loads((folder / "tokenizer.json").read_text())
    change_tokenizer(folder, added_tokens=[token for token in data["added_tokens"] if token["content"] != "[CLS]"])


def no_end(folder: Path) -> None:
    data = json.loads((folder / "tokenizer.json").read_text())
    pieces = {name.replace("[SEP]", "[FIN]"): number for name, number in data["model"]["vocab"].items()}
    added = [token for token in data["added_tokens"] if token["content"] != "[SEP]"]
    change_tokenizer(folder, added_tokens=added, model=data["model"] | {"vocab": pieces})


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (drop_tokenizer, "has neither tokenizer.json nor vocab.txt; copy one of them there"),
        (repeat_a_piece, "is damaged: a piece is in it twice"),
        (only_a_pickle, r"pytorch_model.bin, a pickle, .* BertForSequenceClassification.from_pretrained"),
        (odd_options, "has do_lower_case yes, which must be true or false"),
        (foreign_tokenizer, "has the tokenizer BertJapaneseTokenizer, but no tokenizer.json"),
        (byte_pairs, "is BPE, but heedful imports BERT with WordPiece only"),
        (hostile_pattern, "which is not on the allow-list"),
        (endless_words, "max_input_chars_per_word is 1000000000, not 1 to 256"),
        (no_beginning, r"no beginning piece such as \[CLS\]"),
        (no_end, r"does not name the padding or the end of a text"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_damaged_and_hostile_folders_are_refused(
    damage: Callable[[Path], None], message: str, sorter: Path, tmp_path: Path
) -> None:
    copy = shutil.copytree(sorter, tmp_path / "copy")
    damage(copy)
    with pytest.raises((FolderError, DataError), match=message):
        import_model(copy, tmp_path / "out")


def test_an_output_of_its_own_is_refused(tmp_path: Path) -> None:
    folder = bert_folder(tmp_path / "theirs", "BertForMaskedLM")
    weights = load_tensors(folder / "model.safetensors")
    own = {"cls.predictions.decoder.weight": weights["bert.embeddings.word_embeddings.weight"] + 1.0}
    save_tensors(folder / "model.safetensors", weights | own, {"format": "pt"})
    with pytest.raises(
        FolderError, match=r"has a cls.predictions.decoder.weight of .* but BERT's output is its embedd"
    ):
        import_model(folder, tmp_path / "out")


# sentence-transformers


def test_the_files_of_a_sentence_model_become_settings(tmp_path: Path) -> None:
    import_model(sentence_folder(tmp_path / "mean"), tmp_path / "run")
    network = RunFolder.open(tmp_path / "run").experiment().model
    assert (network.head, network.pooling, network.unit_length, network.max_positions) == ("none", "mean", True, 12)
    import_model(sentence_folder(tmp_path / "cls", "cls_token", normalize=False), tmp_path / "other")
    network = RunFolder.open(tmp_path / "other").experiment().model
    assert (network.pooling, network.unit_length) == ("cls", False)


def test_the_limit_of_the_tokenizer_counts_where_there_is_no_other(tmp_path: Path) -> None:
    folder = sentence_folder(tmp_path / "theirs")
    (folder / "sentence_bert_config.json").unlink()
    options = json.loads((folder / "tokenizer_config.json").read_text())
    for number, (limit, wanted) in enumerate(((17, 17), (10**30, 40), (1e30, 40))):
        (folder / "tokenizer_config.json").write_text(json.dumps(options | {"model_max_length": limit}))
        import_model(folder, tmp_path / f"run-{number}")
        assert RunFolder.open(tmp_path / f"run-{number}").experiment().model.max_positions == wanted


def test_the_newer_name_of_a_pooling_is_known(tmp_path: Path) -> None:
    folder = sentence_folder(tmp_path / "theirs")
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode": "cls", "include_prompt": True}))
    import_model(folder, tmp_path / "run")
    assert RunFolder.open(tmp_path / "run").experiment().model.pooling == "cls"


MODULES = [("Transformer", ""), ("Pooling", "1_Pooling"), ("Dense", "2_Dense")]


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("modules.json", {}, "is damaged: it does not list modules"),
        ("modules.json", [{"type": 5}], "is damaged: a module has no type"),
        (
            "modules.json",
            [{"type": f"a.{k}", "path": p} for k, p in MODULES],
            "has the modules Transformer, Pooling, D",
        ),
        (
            "modules.json",
            [{"type": "Transformer", "path": "a"}, {"type": "Pooling", "path": "b"}],
            "in the folder itself",
        ),
        ("modules.json", [{"type": "Transformer", "path": ""}, {"type": "Pooling", "path": "../b"}], "one inside it"),
        ("1_Pooling/config.json", {"pooling_mode_max_tokens": True}, "has the pooling max_tokens; heedful knows mean"),
        ("1_Pooling/config.json", {"pooling_mode_cls_token": False}, "has the pooling none"),
        ("sentence_bert_config.json", {"max_seq_length": "12"}, "has max_seq_length 12, which is no length"),
        (
            "config_sentence_transformers.json",
            {"prompts": {"query": "query: "}, "default_prompt_name": "query"},
            "puts the prompt 'query' in front of every text",
        ),
    ],
    ids=str,
)
def test_what_a_sentence_model_cannot_have_is_refused(file: str, content: object, message: str, tmp_path: Path) -> None:
    folder = sentence_folder(tmp_path / "theirs")
    (folder / file).write_text(json.dumps(content))
    with pytest.raises(FolderError, match=message):
        import_model(folder, tmp_path / "out")


def test_lower_case_that_the_tokenizer_lacks_is_refused(tmp_path: Path) -> None:
    folder = sentence_folder(tmp_path / "theirs")
    options = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 9, "do_lower_case": True}))
    import_model(folder, tmp_path / "run")
    (folder / "tokenizer_config.json").write_text(json.dumps(options | {"do_lower_case": False}))
    with pytest.raises(FolderError, match="has do_lower_case, but its tokenizer keeps capitals"):
        import_model(folder, tmp_path / "out")
