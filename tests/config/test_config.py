"""Recipes: how they are read, which value wins, and the message for every mistake."""

import dataclasses
import tomllib
import typing
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heedful.config import (
    PRESETS,
    Experiment,
    ModelConfig,
    TrainConfig,
    differences,
    dump_experiment,
    flat,
    load_recipe,
    merge,
    parse_setting,
)
from heedful.config import experiment as page
from heedful.errors import ConfigError
from heedful.tasks import make_experiment
from heedful.training.schedule import learning_rate

RECIPES = Path(__file__).resolve().parents[2] / "recipes"


def mistake(toml: str) -> str:
    """The message about a recipe with this text."""
    with pytest.raises(ConfigError) as caught:
        make_experiment(tomllib.loads(toml))
    return str(caught.value)


class TestKeys:
    @pytest.mark.parametrize(
        ("toml", "message"),
        [
            ("nam = 'x'", "unknown key: nam; did you mean 'name'?"),
            ("[trian]\nmax_steps = 3", "unknown key: trian; did you mean 'train'?"),
            ("[train]\nwarmup_stepz = 3", "unknown key: train.warmup_stepz; did you mean 'warmup_steps'?"),
            ("[model]\nd_modle = 8", "unknown key: model.d_modle; did you mean 'd_model'?"),
            ("[search]\nqqqqq = 8", "unknown key: search.qqqqq"),
            ("max_steps = 3", "unknown key: max_steps; did you mean 'train.max_steps'?"),
            ("[model]\nmax_steps = 3", "unknown key: model.max_steps; did you mean 'train.max_steps'?"),
        ],
    )
    def test_an_unknown_key_is_named_with_the_nearest(self, toml: str, message: str) -> None:
        assert mistake(toml) == message

    @pytest.mark.parametrize(
        ("toml", "message"),
        [
            ("seed = 'one'", "seed must be a whole number, but is 'one' instead"),
            ("seed = true", "seed must be a whole number, but is True instead"),
            ("seed = 1.0", "seed must be a whole number, but is 1.0 instead"),
            ("name = 3", "name must be a string, but is 3 instead"),
            ("model = 3", "model must be a table, but is 3 instead"),
            ("train = [1]", "train must be a table, but is [1] instead"),
            ("[model]\ndropout = true", "model.dropout must be a number, but is True instead"),
            ("[model]\ndropout = '0.1'", "model.dropout must be a number, but is '0.1' instead"),
            ("[train]\nlearning_rate = inf", "train.learning_rate must be a number, but is inf instead"),
            ("[search]\nalpha = nan", "search.alpha must be a number, but is nan instead"),
            ("[train]\nvalidate_bleu = 1", "train.validate_bleu must be true or false, but is 1 instead"),
            ("[data]\nsource = 3", "data.source must be a file name or a list of them, but is 3 instead"),
            ("[data]\ntsv = ['a', 3]", "data.tsv must be a file name or a list of them, but is ['a', 3] instead"),
            (
                "[model]\nnorm = 'pots'",
                "model.norm must be one of post, pre, but is 'pots' instead; did you mean 'post'?",
            ),
            (
                "[model]\nactivation = 'q'",
                "model.activation must be one of relu, gelu, gelu-tanh, gated-gelu-tanh, quick-gelu, swish, but is 'q' "
                "instead",
            ),
            ("[model]\nsharing = true", "model.sharing must be one of all, target, inputs, none, but is True instead"),
            ("[train.best_by]\nx = 1", "train.best_by must be one of loss, bleu, but is {'x': 1} instead"),
            ("[model]\npreset = 'papr'", "unknown preset: papr; did you mean 'paper'?"),
        ],
    )
    def test_a_value_of_the_wrong_kind_is_named(self, toml: str, message: str) -> None:
        assert mistake(toml) == message

    def test_a_whole_number_is_a_number_too(self) -> None:
        rate = make_experiment({"train": {"learning_rate": 2}}).train.learning_rate
        assert (rate, type(rate)) == (2.0, float)

    def test_one_file_name_is_a_list_of_one(self) -> None:
        data = make_experiment({"data": {"source": "a.en", "target": ["a.de", "b.de"]}}).data
        assert (data.source, data.target) == (("a.en",), ("a.de", "b.de"))


class TestRanges:
    LEAST: typing.ClassVar = {
        "model.d_model": 2, "model.d_ff": 1, "model.num_heads": 1, "model.d_k": 0, "model.d_v": 0,
        "model.encoder_layers": 1, "model.decoder_layers": 1, "model.max_positions": 1,
        "model.max_distance": 1, "model.image_size": 1, "model.patch_size": 1,
        "model.text_d_model": 0, "model.text_d_ff": 0, "model.text_heads": 0, "model.projection": 0,
        "model.window": 0, "model.kernel_width": 1,
        "text.bpe_variants": 1,
        "data.shift": 0, "data.hold_out": -1, "data.max_length": 1, "data.max_ratio": 0,
        "train.max_steps": 1, "train.max_minutes": 0, "train.batch_tokens": 1, "train.accumulate": 1,
        "train.warmup_steps": 0, "train.dropout_warmup": 0, "train.weight_decay": 0, "train.clip_norm": 0,
        "train.r_drop": 0, "train.save_every": 1,
        "train.validate_every": 1, "train.patience": 0, "train.average_checkpoints": 1, "train.threads": 0,
        "search.beam": 1, "search.alpha": 0, "search.max_extra": 0, "search.min_length": 0,
        "search.no_repeat_ngram": 0, "search.groups": 1, "search.diversity": 0, "search.samples": 1, "search.top_k": 0,
    }  # fmt: skip
    BELOW_ONE = (
        "model.dropout", "model.attention_dropout", "model.activation_dropout", "text.bpe_dropout",
        "train.label_smoothing", "train.word_dropout", "train.ema_decay", "search.low_confidence",
    )  # fmt: skip
    ABOVE_ZERO = ("train.learning_rate", "train.timeout_minutes", "search.temperature")
    # Checked below, or in `text` once the text is known.
    ELSEWHERE = ("seed", "model.channels", "model.norm_epsilon", "search.seed", "search.top_p", "text.vocabulary_size")

    def test_every_number_has_a_range(self) -> None:
        numbers = {key for key, value in flat(Experiment()).items() if type(value) in (int, float)}
        assert numbers == {*self.LEAST, *self.BELOW_ONE, *self.ABOVE_ZERO, *self.ELSEWHERE}

    @pytest.mark.parametrize("key", LEAST)
    def test_a_number_below_its_least_value_is_named(self, key: str) -> None:
        low = self.LEAST[key]
        is_float = type(flat(Experiment())[key]) is float
        wrong = f"{low - 1}.0" if is_float else f"{low - 1}"
        with pytest.raises(ConfigError) as caught:
            make_experiment(parse_setting(f"{key}={wrong}"))
        assert str(caught.value) == f"{key} must be at least {low}, but is {wrong} instead"

    @pytest.mark.parametrize("key", LEAST)
    def test_the_least_value_is_accepted(self, key: str) -> None:
        low = self.LEAST[key]
        # Other values must fit: a width of one cannot hold two heads, nor a batch of one token three parts.
        around = {"model": {"num_heads": 1}}
        assert flat(make_experiment(merge(around, parse_setting(f"{key}={low}"))))[key] == low

    @pytest.mark.parametrize("key", BELOW_ONE)
    @pytest.mark.parametrize("value", ["-0.1", "1.0", "1.5"])
    def test_a_probability_is_at_least_0_and_below_1(self, key: str, value: str) -> None:
        with pytest.raises(ConfigError) as caught:
            make_experiment(parse_setting(f"{key}={value}"))
        assert str(caught.value) == f"{key} must be at least 0 and below 1, but is {value} instead"

    @pytest.mark.parametrize("key", ABOVE_ZERO)
    @pytest.mark.parametrize("value", ["0.0", "-0.1"])
    def test_some_numbers_are_above_0(self, key: str, value: str) -> None:
        with pytest.raises(ConfigError) as caught:
            make_experiment(parse_setting(f"{key}={value}"))
        assert str(caught.value) == f"{key} must be above 0, but is {value} instead"

    @pytest.mark.parametrize("seed", [-1, 2**63])
    def test_a_seed_must_suit_every_generator(self, seed: int) -> None:
        with pytest.raises(ConfigError) as caught:
            make_experiment({"seed": seed})
        assert str(caught.value) == f"seed must be at least 0 and below 9223372036854775808, but is {seed} instead"
        assert make_experiment({"seed": 2**63 - 1}).seed == 2**63 - 1

    def test_the_seed_of_the_search_has_the_same_range(self) -> None:
        assert mistake("[search]\nseed = -3") == (
            "search.seed must be at least 0 and below 9223372036854775808, but is -3 instead"
        )

    @pytest.mark.parametrize("value", ["0.0", "1.5", "-0.1"])
    def test_top_p_is_above_0_and_at_most_1(self, value: str) -> None:
        assert mistake(f"[search]\ntop_p = {value}") == (
            f"search.top_p must be above 0 and at most 1, but is {value} instead"
        )
        assert make_experiment({"search": {"top_p": 1.0}}).search.top_p == 1.0


class TestFit:
    """Values that are valid alone but not together."""

    def test_heads_must_divide_the_width(self) -> None:
        assert mistake("[model]\nd_model = 10\nnum_heads = 4") == (
            "model.d_model is 10, which 4 heads do not divide; change model.num_heads, or set model.d_k and model.d_v"
        )

    def test_groups_must_divide_the_beam(self) -> None:
        assert mistake("[search]\nbeam = 4\ngroups = 3") == (
            "search.beam is 4, which 3 groups do not divide; change search.groups or --beam"
        )

    def test_setting_only_one_of_d_k_and_d_v_is_not_enough(self) -> None:
        assert "which 4 heads do not divide" in mistake("[model]\nd_model = 10\nnum_heads = 4\nd_k = 3")

    def test_heads_need_not_divide_the_width_if_d_k_and_d_v_are_set(self) -> None:
        model = make_experiment({"model": {"d_model": 10, "num_heads": 4, "d_k": 3, "d_v": 5}}).model
        assert (model.d_k, model.d_v) == (3, 5)

    def test_the_width_must_be_even(self) -> None:
        assert mistake("[model]\nd_model = 9\nnum_heads = 3") == "model.d_model must be even, but is 9 instead"

    @pytest.mark.parametrize(
        ("setting", "shown"),
        [
            ("window = 4", "window is 4"),
            ("attention_dropout = 0.1", "attention_dropout is 0.1"),
            ("cross_heads = [1, 2]", "cross_heads is [1, 2]"),
        ],
    )
    @pytest.mark.parametrize(("preset", "family"), [("gru", "recurrent"), ("convs2s", "convolutional")])
    def test_keys_of_transformers_are_refused_for_other_families(
        self, setting: str, shown: str, preset: str, family: str
    ) -> None:
        assert mistake(f"[model]\npreset = '{preset}'\n{setting}") == (
            f"model.{shown} but model.family is '{family}', which does not use it; leave it out"
        )

    def test_without_attention_both_stacks_must_be_equally_deep(self) -> None:
        assert mistake("[model]\npreset = 'lstm'\nencoder_layers = 3") == (
            "model.encoder_layers is 3 but model.decoder_layers is 2; without attention each decoder layer starts "
            "from an encoder layer: make them equal, or set model.attention"
        )
        assert make_experiment({"model": {"preset": "luong", "encoder_layers": 3}}).model.encoder_layers == 3

    def test_a_kernel_must_have_a_middle(self) -> None:
        assert mistake("[model]\npreset = 'convs2s'\nkernel_width = 4") == (
            "model.kernel_width must be odd, but is 4 instead"
        )

    def test_convolutions_learn_their_positions(self) -> None:
        assert mistake("[model]\nfamily = 'convolutional'") == (
            "model.positions is 'sinusoidal' but model.family is 'convolutional', "
            "which learns its positions; set model.positions = 'learned'"
        )

    @pytest.mark.parametrize(
        ("setting", "expected"),
        [
            ("norm = 'post'", "model.norm is 'post' but model.family is 't5', which has 'pre'; leave the key out"),
            ("window = 3", "model.window is 3 but model.family is 't5', which has 0; leave the key out"),
            (
                "max_distance = 16",
                "model.max_distance is 16, but in model.family 't5' the nearest 16 distances have a bias each; "
                "set it higher, to 128 as in the original",
            ),
        ],
    )
    def test_t5_refuses_what_it_does_not_have(self, setting: str, expected: str) -> None:
        assert mistake(f"[model]\npreset = 't5'\n{setting}") == expected

    @pytest.mark.parametrize("setting", ["activation = 'gated-gelu-tanh'", "sharing = 'inputs'"])
    def test_only_t5_has_gates_and_an_output_layer_apart_from_its_inputs(self, setting: str) -> None:
        shown = setting.replace("=", "is")
        assert mistake(f"[model]\n{setting}") == (
            f"model.{shown} but model.family is 'transformer'; only 't5' has it: choose another"
        )

    def test_heads_need_not_divide_the_width_of_a_recurrent_model(self) -> None:
        assert make_experiment({"model": {"preset": "gru", "d_model": 101}}).model.d_model == 101

    def test_two_vocabularies_cannot_share_one_embedding(self) -> None:
        assert mistake("[text]\nvocabularies = 'separate'") == (
            "text.vocabularies is 'separate' but model.sharing is 'all'; "
            "two vocabularies cannot share one embedding: set model.sharing = 'target'"
        )
        both = {"text": {"vocabularies": "separate"}, "model": {"sharing": "target"}}
        assert make_experiment(both).model.sharing == "target"

    def test_bpe_dropout_needs_bpe(self) -> None:
        assert mistake("[text]\nkind = 'unigram'\nbpe_dropout = 0.1") == (
            "text.bpe_dropout is 0.1 but text.kind is 'unigram'; it needs 'bpe'"
        )

    def test_muon_needs_whole_matrices(self) -> None:
        assert mistake("[train]\noptimizer = 'muon'\nparallel = 'shards'") == (
            "train.optimizer is 'muon', which needs whole matrices, but train.parallel is 'shards'; "
            "set train.parallel = 'copies' or train.optimizer = 'adam'"
        )

    def test_a_batch_has_a_token_for_each_part(self) -> None:
        assert mistake("[train]\nbatch_tokens = 3\naccumulate = 4") == (
            "train.accumulate is 4 but a batch has only 3 tokens; lower it"
        )


class TestRemoved:
    """Options that 0.2 removed; run folders of 0.1 name all of them with their defaults."""

    @pytest.mark.parametrize(
        "setting",
        ["text.sample_lines=2000000", "train.beta1=0.9", "train.beta2=0.98", "train.epsilon=1e-09"],
    )
    def test_the_former_default_is_accepted(self, setting: str) -> None:
        assert make_experiment(parse_setting(setting)) == Experiment()

    @pytest.mark.parametrize(
        ("setting", "sentence"),
        [
            (
                "train.beta2=0.5",
                "train.beta2 is no longer an option: Adam has the constants of the paper; leave it out",
            ),
        ],
    )
    def test_another_value_is_refused_with_the_reason(self, setting: str, sentence: str) -> None:
        with pytest.raises(ConfigError) as caught:
            make_experiment(parse_setting(setting))
        assert str(caught.value) == sentence


def test_another_schedule_keeps_the_peak_of_the_rate() -> None:
    def peak(**train: object) -> float:
        found = make_experiment({"model": {"preset": "modern"}, "train": train})
        return learning_rate(found.train.warmup_steps, found.model.d_model, found.train)

    assert peak() == 0.003
    assert peak(schedule="linear") == 0.003
    assert peak(schedule="paper") == pytest.approx(0.003, rel=0.01)
    assert peak(schedule="paper", learning_rate=1.0) == pytest.approx((128 * 400) ** -0.5)
    assert make_experiment({"train": {"schedule": "cosine"}}).train.learning_rate == pytest.approx(0.000699, rel=0.01)


class TestRecipes:
    def refused(self, path: Path) -> str:
        with pytest.raises(ConfigError) as caught:
            load_recipe(path)
        return str(caught.value)

    @pytest.mark.parametrize("path", sorted(RECIPES.glob("*.toml")), ids=lambda path: path.stem)
    def test_every_recipe_parses(self, path: Path) -> None:
        experiment = make_experiment(load_recipe(path))
        assert experiment.name == path.stem
        assert experiment.data.source or experiment.data.text

    def test_there_are_recipes(self) -> None:
        assert list(RECIPES.glob("*.toml"))

    def test_a_missing_recipe_is_named_with_the_nearest(self, tmp_path: Path) -> None:
        (tmp_path / "german.toml").touch()
        wrong = tmp_path / "germann.toml"
        assert self.refused(wrong) == f"no recipe {wrong}; did you mean 'german.toml'?"

    def test_a_missing_recipe_in_a_missing_folder_is_named_alone(self, tmp_path: Path) -> None:
        wrong = tmp_path / "nowhere" / "x.toml"
        assert self.refused(wrong) == f"no recipe {wrong}"

    def test_a_folder_is_not_a_recipe(self, tmp_path: Path) -> None:
        assert self.refused(tmp_path) == (
            f"{tmp_path} is a folder, not a recipe; to resume a run, use --resume {tmp_path}"
        )

    def test_invalid_toml_is_named_with_its_place(self, tmp_path: Path) -> None:
        path = tmp_path / "x.toml"
        path.write_text("[train]\nmax_steps == 3\n")
        assert self.refused(path).startswith(f"{path} is not TOML: ")
        assert "line 2" in self.refused(path)

    def test_a_binary_file_is_named_with_its_first_wrong_byte(self, tmp_path: Path) -> None:
        path = tmp_path / "x.toml"
        path.write_bytes(b"name = '\xff'")
        assert self.refused(path) == f"{path} is not UTF-8 text (byte 8); a recipe is a TOML file"


class TestSettings:
    @pytest.mark.parametrize(
        ("setting", "tables"),
        [
            ("train.max_steps=200", {"train": {"max_steps": 200}}),
            (" train.max_steps = 200 ", {"train": {"max_steps": 200}}),
            ("seed=3", {"seed": 3}),
            ("train.schedule=cosine", {"train": {"schedule": "cosine"}}),
            ("train.validate_bleu=false", {"train": {"validate_bleu": False}}),
            ("data.source=['a','b']", {"data": {"source": ["a", "b"]}}),
            ("data.folder=/data/a=b", {"data": {"folder": "/data/a=b"}}),
            ("name=", {"name": ""}),
        ],
    )
    def test_a_value_is_toml_or_a_string(self, setting: str, tables: dict[str, Any]) -> None:
        assert parse_setting(setting) == tables

    @pytest.mark.parametrize("setting", ["train.max_steps", "=3", " =3"])
    def test_a_malformed_setting_gets_an_example(self, setting: str) -> None:
        with pytest.raises(ConfigError) as caught:
            parse_setting(setting)
        assert str(caught.value) == (f"--set {setting}: write it as key=value, such as --set train.max_steps=200")


class TestPrecedence:
    def test_the_last_layer_wins_key_by_key(self) -> None:
        low = {"a": 1, "t": {"x": 1, "y": 1}, "u": {"x": 1}}
        assert merge(low, {"t": {"y": 2}, "a": 2}, {"u": 3}) == {"a": 2, "t": {"x": 1, "y": 2}, "u": 3}
        assert low == {"a": 1, "t": {"x": 1, "y": 1}, "u": {"x": 1}}

    def test_tables_override_those_under_them_which_override_the_preset(self) -> None:
        under = {"model": {"preset": "modern", "d_ff": 300, "dropout": 0.2}}
        model = make_experiment({"model": {"dropout": 0.4}}, under).model
        assert (model.preset, model.d_model, model.d_ff, model.dropout) == ("modern", 128, 300, 0.4)
        assert model.activation == ModelConfig().activation  # which no layer sets

    def test_the_preset_of_the_tables_overrides_the_one_under_them(self) -> None:
        it = make_experiment({"model": {"preset": "big"}}, {"model": {"preset": "modern", "d_ff": 300}})
        assert (it.model.d_model, it.model.d_ff, it.train.max_steps) == (1024, 300, 300_000)

    def test_presets_are_not_changed_by_use(self) -> None:
        before = repr(PRESETS)
        make_experiment({"model": {"preset": "modern", "d_ff": 300}, "train": {"max_steps": 3}})
        assert repr(PRESETS) == before

    def test_differences_name_both_values(self) -> None:
        ours = make_experiment({"seed": 7, "train": {"max_steps": 3}})
        assert differences(ours, Experiment()) == [("seed", 7, 1), ("train.max_steps", 3, 100_000)]


def values(hint: Any) -> st.SearchStrategy[Any]:
    """Any value of an option of this type, within the range that most options have."""
    if get_origin(hint) is Literal:
        return st.sampled_from(get_args(hint))
    text = st.text(st.characters(exclude_categories=["Cs"]), max_size=9)
    if get_origin(hint) is tuple:
        return st.lists(text, max_size=3).map(tuple) if str in get_args(hint) else st.just(())
    return {
        int: st.integers(5, 10**6),
        float: st.floats(2.0**-60, 1.0, exclude_max=True),
        bool: st.booleans(),
        str: text,
    }[hint]


def tables_of(kind: type[Any]) -> st.SearchStrategy[Any]:
    hints = typing.get_type_hints(kind)
    return st.builds(kind, **{name: values(hint) for name, hint in hints.items()})


@st.composite
def experiments(draw: st.DrawFn) -> Experiment:
    """Any experiment that passes the checks."""
    model, text = draw(tables_of(ModelConfig)), draw(tables_of(page.TextConfig))
    heads, layers = draw(st.integers(1, 64)), draw(st.integers(1, 5))
    return Experiment(
        name=draw(values(str)),
        seed=draw(st.integers(0, 2**63 - 1)),
        model=dataclasses.replace(
            model,
            family="transformer",  # the tests above cover keys that the others refuse
            preset=draw(st.sampled_from(list(PRESETS))),
            num_heads=heads,
            d_model=2 * heads * draw(st.integers(1, 64)),
            encoder_layers=layers,
            encoder_heads=tuple(draw(st.lists(st.integers(1, 99), min_size=layers, max_size=layers))),
            activation="swish" if model.activation in ("gated-gelu-tanh", "quick-gelu") else model.activation,
            sharing="target" if text.vocabularies == "separate" or model.sharing == "inputs" else model.sharing,
        ),
        text=text if text.kind == "bpe" else dataclasses.replace(text, bpe_dropout=0.0),
        # The others are for other tasks.
        data=dataclasses.replace(draw(tables_of(page.DataConfig)), text=(), valid_text=(), images=(), captions=()),
        train=dataclasses.replace(draw(tables_of(TrainConfig)), accumulate=draw(st.integers(1, 5)), parallel="copies"),
        search=dataclasses.replace(draw(tables_of(page.SearchConfig)), groups=1),
        evaluate=draw(tables_of(page.EvaluateConfig)),
    )


class TestDump:
    @settings(deadline=None, max_examples=60)
    @given(experiments())
    def test_a_dumped_experiment_is_read_back_unchanged(self, experiment: Experiment) -> None:
        text = dump_experiment(experiment).encode().decode()
        assert make_experiment(tomllib.loads(text)) == experiment

    @pytest.mark.parametrize("name", PRESETS)
    def test_presets_are_dumped_in_full(self, name: str) -> None:
        experiment = make_experiment({"model": {"preset": name}})
        tables = tomllib.loads(dump_experiment(experiment))
        assert flat(experiment).keys() == {
            f"{table}.{key}" if isinstance(entry, dict) else table
            for table, entry in tables.items()
            for key in (entry if isinstance(entry, dict) else [table])
        }
        assert make_experiment(tables) == experiment
