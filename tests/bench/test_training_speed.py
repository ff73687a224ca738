"""The training benchmark counts correctly, and its processes take turns."""

import json
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from contender import Lap
from peers import PEERS, command_peers, fairseq_update, joeynmt_update
from race import TUNED, Child, Contender, Result, machine_seconds, peak_bytes, processor_seconds, python, race, tree
from training_cost import AXES, Point, exponents, markdown
from training_speed import flops_per_token, measure, own_contenders, summary, table
from workload import (
    EOS,
    PAD,
    SHAPES,
    TINY,
    Sentences,
    Shape,
    forward_flops,
    make_batches,
    make_sentences,
    training_flops,
    words,
    write_text,
)

SMALL = Shape(d_model=8, d_ff=12, num_heads=2, layers=1, batch_tokens=60, vocabulary=50, pairs=40)
SLEEPER = "import sys, time\nfor n in range(10**9): print('update', n, flush=True); time.sleep(0.01)"


def two_pairs() -> Sentences:
    sources = [np.array([5, 6, EOS]), np.array([7, EOS])]
    targets = [np.array([8, EOS]), np.array([9, 10, 11, 12, EOS])]
    return Sentences(sources, targets)


def result(name: str, kind: str, *speeds: float) -> Result:
    contender = Contender(name, kind, [])  # type: ignore[arg-type]
    return Result(contender, [Lap(speed, 1.0) for speed in speeds], 3_000_000, [0.0 for _ in speeds])


def program(script: str) -> Contender:
    """A program that writes a log; a line with "update" reports 7 target tokens."""
    return Contender(
        "program", "shipped", [sys.executable, "-c", script], {}, lambda line, _: 7.0 if "update" in line else None, 2.5
    )


def test_tokens_are_counted_on_both_sides_without_padding() -> None:
    pairs = two_pairs()
    assert pairs.lengths() == [(3, 2), (2, 5)]
    assert pairs.tokens([0, 1]) == 12
    assert pairs.tokens([1]) == 7
    assert pairs.tokens_per_target_token == pytest.approx(12 / 7)


def test_operations_equal_a_count_by_hand() -> None:
    shape = Shape(d_model=2, d_ff=3, num_heads=1, layers=1, batch_tokens=99, vocabulary=5)
    # One source token and two target tokens, in multiply-adds.
    encoder = 4 * (2 * 2) + 2 * (2 * 3) + (1 * 1) * 2 * 2
    self_attention = 2 * 4 * (2 * 2) + (1 + 2) * 2 * 2
    cross_attention = 2 * 2 * (2 * 2) + 1 * 2 * (2 * 2) + (2 * 1) * 2 * 2
    feed_forward = 2 * 2 * (2 * 3)
    output = 2 * 2 * 5
    by_hand = 2 * (encoder + self_attention + cross_attention + feed_forward + output)
    assert by_hand == 304  # 2 * (32 + 44 + 32 + 24 + 20)
    assert forward_flops(shape, [(1, 2)]) == by_hand
    assert training_flops(shape, [(1, 2)]) == 3 * by_hand


def test_operations_add_up_over_pairs_and_only_attention_is_quadratic() -> None:
    one, other = forward_flops(SMALL, [(3, 4)]), forward_flops(SMALL, [(6, 2)])
    assert forward_flops(SMALL, [(3, 4), (6, 2)]) == one + other
    # With a source twice as long, only the encoder's self-attention more than doubles.
    without_target = [forward_flops(SMALL, [(n, 0)]) for n in (10, 20)]
    assert without_target[1] - 2 * without_target[0] == 2 * SMALL.layers * (20 * 20 - 2 * 10 * 10) * 2 * SMALL.d_model


def test_operations_equal_pytorchs_count() -> None:
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.utils.flop_counter import FlopCounterMode
    from training_pytorch import TutorialModel

    shape = replace(SMALL, layers=2, dropout=0.0)
    model = TutorialModel(shape).eval()
    source, target = torch.ones(1, 6, dtype=torch.long), torch.ones(1, 1, dtype=torch.long)
    # Only this kernel is counted. One target token, because PyTorch also computes attention to later positions.
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
        model(source, source > 0, target, target > 0)
    assert counter.get_total_flops() == forward_flops(shape, [(6, 1)])


def test_sentences_are_reproducible_and_as_long_as_captions() -> None:
    first, second = make_sentences(TINY), make_sentences(TINY)
    assert all(np.array_equal(a, b) for a, b in zip(first.sources, second.sources, strict=True))
    assert len(first.sources) == len(first.targets) == TINY.pairs
    source, target = np.array(first.lengths()).T
    assert 13 < source.mean() < 17 and 13 < target.mean() < 17 and max(source.max(), target.max()) < 80
    every = np.concatenate([*first.sources, *first.targets])
    assert every.min() == EOS and every.max() < TINY.vocabulary and PAD not in every


def test_sentences_can_have_a_fixed_length() -> None:
    assert set(make_sentences(replace(SMALL, length=9)).lengths()) == {(9, 9)}


def test_batches_hold_every_pair_once_within_the_budget() -> None:
    sentences = make_sentences(SMALL)
    batches = make_batches(sentences, SMALL.batch_tokens)
    assert sorted(index for batch in batches for index in batch) == list(range(SMALL.pairs))
    for batch in batches:
        for side in (sentences.sources, sentences.targets):
            assert sum(len(side[index]) for index in batch) <= SMALL.batch_tokens


def test_text_for_other_programs_uses_their_dictionary_and_has_no_eos(tmp_path: Path) -> None:
    write_text(two_pairs(), tmp_path, "train", ("en", "de"))
    assert (tmp_path / "train.en").read_text() == "w5 w6\nw7\n"
    assert (tmp_path / "train.de").read_text() == "w8\nw9 w10 w11 w12\n"
    known = words(SMALL)
    assert (known[0], known[-1], len(known)) == ("w2", "w49", 48)


def test_a_benchmark_with_real_processes_gives_all_figures(tmp_path: Path) -> None:
    # Hugging Face's takes seconds to start; its loop is tested below, and its process runs the same file.
    contenders = [one for one in own_contenders(tmp_path, 1) if not one.name.startswith("Hugging Face")]
    facts = json.loads(json.dumps(measure(contenders, SMALL, tmp_path, 0.2, rounds=2)))
    racers = ["heedful", "nn.Transformer", "nn.Transformer, tuned allocator"]
    assert facts["skipped"] == {}
    for key in ("tokens_per_second", "rounds", "share_of_gemm_peak", "peak_megabytes", "busy_elsewhere"):
        assert list(facts[key]) == racers, key
    assert all(len(rounds) == 2 and min(rounds) > 0 for rounds in facts["rounds"].values())
    assert list(facts["ratio"]) == racers[1:]
    assert (facts["fastest_peer"], facts["fastest_tuned_peer"]) == (racers[1], racers[2])
    assert facts["ratio_to_fastest_peer"] == facts["ratio"][racers[1]]
    assert facts["ratio_to_fastest_tuned_peer"] == facts["ratio"][racers[2]]
    assert facts["gemm_peak_gflops"] > 0 and facts["gflop_per_token"] == pytest.approx(flops_per_token(SMALL) / 1e9)
    assert all(megabytes > 0 for megabytes in facts["peak_megabytes"].values())
    assert [line.split("  ")[0] for line in table(facts).splitlines()[1:4]] == racers


@pytest.mark.parametrize("name", ["TutorialModel", "Marian"])
def test_a_plain_loop_learns_and_counts_its_tokens(name: str) -> None:
    import torch
    import training_pytorch

    torch.manual_seed(1)
    model = getattr(training_pytorch, name)(SMALL)
    before = [parameter.detach().clone() for parameter in model.parameters()]
    step = training_pytorch.loop_step(model, SMALL)
    sentences = make_sentences(SMALL)
    batches = make_batches(sentences, SMALL.batch_tokens)
    assert [step(), step()] == [sentences.tokens(batches[0]), sentences.tokens(batches[1])]
    changed = [not torch.equal(old, new) for old, new in zip(before, model.parameters(), strict=True)]
    assert sum(changed) > len(changed) / 2


def test_a_summary_has_means_ratios_and_shares() -> None:
    found = [
        *(
            result("heedful", "heedful", 300.0, 500.0),
            result("slow", "shipped", 100.0),
            result("quick", "shipped", 200.0),
        ),
        *(result("tuned", "tuned", 250.0), result("matrix product", "machine", 1e6, 8e6, 2e6)),
    ]
    facts = summary(found, SMALL)
    assert facts["tokens_per_second"] == {"heedful": 400.0, "slow": 100.0, "quick": 200.0, "tuned": 250.0}
    assert facts["ratio"] == {"slow": 4.0, "quick": 2.0, "tuned": 1.6}
    assert (facts["fastest_peer"], facts["ratio_to_fastest_peer"]) == ("quick", 2.0)
    assert (facts["fastest_tuned_peer"], facts["ratio_to_fastest_tuned_peer"]) == ("tuned", 1.6)
    assert facts["share_of_gemm_peak"]["heedful"] == round(400.0 * flops_per_token(SMALL) / 2e6, 3)
    assert facts["peak_megabytes"]["slow"] == 3


def test_only_tuned_loops_use_another_allocator(tmp_path: Path) -> None:
    for contender in own_contenders(tmp_path, 2):
        assert contender.environment == (TUNED if contender.kind == "tuned" else {})


def test_a_contender_does_not_inherit_our_thread_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    monkeypatch.setenv("MALLOC_TOP_PAD_", "7")
    script = "import os; print('OMP_NUM_THREADS' in os.environ, os.environ['MALLOC_TOP_PAD_']); raise SystemExit"
    contender = Contender("shows", "shipped", [sys.executable, "-c", script], TUNED, lambda *_: None)
    _, failed = race([contender], tmp_path, 0.1, 1)
    assert failed == {"shows": f"shows ended: False {TUNED['MALLOC_TOP_PAD_']}"}


def test_a_failed_contender_is_reported_with_its_last_line_and_the_others_continue(tmp_path: Path) -> None:
    broken = Contender("broken", "shipped", [sys.executable, "-c", "raise ValueError('no such shape')"])
    results, failed = race([broken, program(SLEEPER)], tmp_path, 0.05, 1)
    assert failed == {"broken": "broken ended: ValueError: no such shape"}
    assert [found.contender.name for found in results] == ["program"]


def test_a_program_is_measured_by_its_log_and_paused_between_laps(tmp_path: Path) -> None:
    child = Child(program(SLEEPER), tmp_path)
    try:
        child.prepare()
        before = child.processor_seconds()
        time.sleep(0.3)
        assert child.processor_seconds() == before
        lap = child.lap(0.1)
        updates = lap.work / (7.0 * 2.5)
        assert updates == round(updates) and updates >= 1
        assert lap.seconds >= 0.1
        # It sleeps for 10 ms after each line, and no lap includes the pause.
        assert updates <= lap.seconds / 0.01 + 1
    finally:
        child.close()


def test_closing_ends_the_process(tmp_path: Path) -> None:
    child = Child(program(SLEEPER), tmp_path)
    child.prepare()
    pid = child._process.pid
    assert peak_bytes(pid) > 1_000_000
    child.close()
    assert peak_bytes(pid) == 0


def test_target_tokens_are_read_from_the_logs_of_other_programs() -> None:
    fairseq = (
        '2026-01-01 00:00:00 | INFO | train_inner | {"epoch": 1, "update": 0.5, "loss": "9.1", "wps": "5000", '
        '"ups": "1.4", "wpb": "3504", "bsz": "240"}'
    )
    assert fairseq_update(fairseq, 0.7) == 3504.0
    assert fairseq_update('2026-01-01 | INFO | train | {"epoch": 1, "train_wpb": "3504"}', 0.7) is None
    joeynmt = (
        "INFO - joeynmt.training - Epoch   1, Step:       12, Batch Loss: 9.1, Tokens per Sec:     1500, Lr: 0.0005"
    )
    assert joeynmt_update(joeynmt, 2.0) == 3000.0
    assert joeynmt_update("INFO - joeynmt.training - EPOCH 1", 2.0) is None


def test_a_missing_peer_is_named_with_the_command_that_installs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("peers.ENVIRONMENTS", tmp_path / "none")
    contenders, absent = command_peers(tmp_path, SMALL, 1)
    assert contenders == []
    assert absent["fairseq"] == "fairseq is not installed; install it with: python bench/peers.py install fairseq"
    assert list(absent) == [peer.name for peer in PEERS]


def test_other_programs_get_the_same_sizes_and_options(tmp_path: Path) -> None:
    fairseq, joeynmt = PEERS
    shape = replace(SMALL, d_model=10, d_ff=14, num_heads=5, layers=3, dropout=0.25, label_smoothing=0.15)
    (tmp_path / "fairseq").mkdir()
    (tmp_path / "joeynmt").mkdir()
    arguments = fairseq.prepare(tmp_path / "fairseq", shape, two_pairs())
    expected = {"--encoder-embed-dim=10", "--decoder-ffn-embed-dim=14", "--encoder-attention-heads=5"}
    assert expected | {"--decoder-layers=3", "--dropout=0.25", "--label-smoothing=0.15", "--max-tokens=60"} <= set(
        arguments
    )
    joeynmt.prepare(tmp_path / "joeynmt", shape, two_pairs())
    config = json.loads((tmp_path / "joeynmt" / "config.yaml").read_text())
    decoder = config["model"]["decoder"]
    sizes = [decoder[key] for key in ("hidden_size", "ff_size", "num_heads", "num_layers", "dropout")]
    assert sizes == [10, 14, 5, 3, 0.25]
    assert (config["training"]["label_smoothing"], config["training"]["batch_size"]) == (0.15, 60)


def test_an_unknown_peer_is_refused() -> None:
    done = subprocess.run(python("peers.py", "install", "marian"), capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "unknown peer: marian; there are fairseq and joeynmt" in done.stderr


def test_exponents_of_a_power_law_are_found() -> None:
    points = [Point(n, 1000.0 / n**1.5, 7.0 * n**2, 1) for n in (2, 4, 16)]
    found = exponents(points)
    assert found["exponent"] == found["last_exponent"] == 1.5
    assert found["exponent_of_operations"] == found["last_exponent_of_operations"] == 2.0
    assert "| 16 | 16 | 0.0 | 0 | 1 MB |" in markdown("length", points)


@pytest.mark.parametrize("axis", AXES, ids=lambda axis: axis.name)
def test_an_axis_changes_only_its_own_size_around_tiny(axis: object) -> None:
    from training_cost import Axis

    assert isinstance(axis, Axis)
    shapes = [axis.shape(value) for value in axis.values]
    assert [getattr(shape, axis.name) for shape in shapes] == list(axis.values)
    assert all(shape.d_model % shape.num_heads == 0 for shape in shapes)
    assert axis.name == "length" or SHAPES["tiny"] in shapes


def test_the_report_describes_the_machine() -> None:
    busy, every = machine_seconds()
    assert 0.0 < busy < every
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        assert tree(child.pid) == [child.pid]
        assert 0.0 <= processor_seconds(child.pid) < every
    finally:
        child.communicate(b"\n")
    assert tree(child.pid) == [child.pid] and processor_seconds(child.pid) == 0.0
