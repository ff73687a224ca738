"""Table 4: constituency parsing by the Transformer and by an LSTM with attention of the same size."""

from collections.abc import Sequence

from heedful.config import RIVAL_RATE, merge
from heedful.errors import DataError
from heedful.studies.row_training import (
    SMOKE,
    FinishedRow,
    dry_run,
    finish_rows,
    format_interval,
    make_caveat,
    read_test_questions,
)
from heedful.studies.rows import collect_corpus_facts, load_experiment, make_rival_row, make_row, select_rows
from heedful.studies.study import Cell, StudyPlan, StudyResult, Table
from heedful.studies.synthetic import write_treebank
from heedful.tasks import Question
from heedful.tasks.parsing import PARSING, TREE_TASKS
from heedful.text.trees import read_tree

_TITLE = "Table 4: constituency parsing"
_SMOKE_SIZES = (300, 20, 40)
_NAMES = {"transformer": "Transformer", "lstm": "LSTM, additive attention"}
# F1 on section 23 of the WSJ.
_OURS = {"transformer": (91.3, 92.7), "lstm": (88.3, 92.1)}
_PAPER: tuple[tuple[str, str, float], ...] = (
    ("Vinyals & Kaiser et al. (2014)", "WSJ only", 88.3),
    ("Petrov et al. (2006)", "WSJ only", 90.4),
    ("Zhu et al. (2013)", "WSJ only", 90.4),
    ("Dyer et al. (2016)", "WSJ only", 91.7),
    ("Transformer (4 layers)", "WSJ only", 91.3),
    ("Zhu et al. (2013)", "semi-supervised", 91.3),
    ("Huang & Harper (2009)", "semi-supervised", 91.3),
    ("McClosky et al. (2006)", "semi-supervised", 92.1),
    ("Vinyals & Kaiser et al. (2014)", "semi-supervised", 92.1),
    ("Transformer (4 layers)", "semi-supervised", 92.7),
    ("Luong et al. (2015)", "multi-task", 93.0),
    ("Dyer et al. (2016)", "generative", 93.3),
)


def table4(plan: StudyPlan) -> StudyResult:
    """Train both parsers and score their trees."""
    if plan.scale == "smoke":
        write_treebank(plan.folder / "data", _SMOKE_SIZES)
    example = "recipes/paper-parsing-wsj.toml" if plan.scale == "paper" else "recipes/parsing-wsj-sample.toml"
    experiment = load_experiment("table4", plan, _smoke(plan), example, *TREE_TASKS)
    found = collect_corpus_facts(experiment, plan)
    lstm = make_rival_row("lstm", "bahdanau", experiment, found, cell="lstm")
    rows = select_rows([make_row("transformer", experiment, {}), lstm], plan)
    if plan.dry_run:
        return dry_run(_TITLE, rows, found, plan)
    asked = read_test_questions("table4", experiment)
    done = finish_rows(rows, lambda _: asked, plan)
    paper = Table("The paper's Table 4: WSJ section 23", ("parser", "training", "F1"), _PAPER)
    return StudyResult(_TITLE, (_table(done, asked, plan), paper))


def valid_trees(outputs: Sequence[str], asked: Sequence[Question]) -> int:
    """Count the outputs that are a tree over exactly the words of their sentence."""
    return sum(_is_tree_over(output, question.source.split()) for output, question in zip(outputs, asked, strict=True))


def _is_tree_over(output: str, words: Sequence[str]) -> bool:
    try:
        return list(read_tree(output).texts()) == list(words)
    except DataError:
        return False


def _smoke(plan: StudyPlan) -> dict[str, object]:
    files = {f"{part}source": f"{name}.mrg" for part, name in (("", "train"), ("valid_", "valid"), ("test_", "test"))}
    model = {"preset": "modern", "d_model": 64, "d_ff": 128, "encoder_layers": 2, "decoder_layers": 2, "dropout": 0.0}
    train = {"max_steps": 80, "warmup_steps": 20, "validate_every": 40, "save_every": 80, "validate_bleu": True}
    own = {
        "task": PARSING.name,
        "data": {"folder": str(plan.folder / "data"), **files},
        "model": {**model, "sharing": "target"},
    }
    return merge(SMOKE, own, {"text": {"vocabularies": "separate"}, "train": train, "search": {"max_extra": 40}})


def _table(done: Sequence[FinishedRow], asked: Sequence[Question], plan: StudyPlan) -> Table:
    columns = (
        *("model", "parameters", "training FLOPs", "F1", "95 % interval", "complete %", "valid trees"),
        *("the paper's F1, WSJ only", "semi-supervised"),
    )
    rows: list[tuple[Cell, ...]] = []
    for one in done:
        f1, whole = one.scored.score("F1"), one.scored.score("complete")
        valid = f"{valid_trees(one.scored.outputs, asked)} of {len(asked)}"
        ours = (one.effort.parameters, one.effort.flops, f1.value, format_interval(f1), whole.value, valid)
        rows.append((_NAMES[one.row.name], *ours, *_OURS[one.row.name]))
    return Table(
        _TITLE,
        columns,
        tuple(rows),
        (
            "F1 is for labelled brackets by EVALB's rules, at all lengths. A valid tree has exactly the words of the "
            "input.",
            f"The LSTM has as many parameters as the Transformer, and the same training except for its learning rate, "
            f"{RIVAL_RATE}. The paper's LSTM with attention is that of Vinyals & Kaiser et al. (2014).",
        ),
        make_caveat(plan),
    )
