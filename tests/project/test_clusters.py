"""The job files of the documentation, run as far as possible without a cluster."""

import os
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from heedful.cli.commands import app
from heedful.config import load_recipe
from heedful.tasks import make_experiment

ROOT = Path(__file__).resolve().parents[2]
SLURM = ROOT / "docs/how-to/slurm.sh"
KUBERNETES = ROOT / "docs/how-to/kubernetes.yaml"
PAPER = ("paper-base-en-de", "paper-big-en-de")

FAKES = {
    # srun starts the command once per machine; here once.
    "srun": 'shift; exec "$@"',
    "torchrun": 'echo torchrun "$@" >>"$CALLS"; ${TORCHRUN_DOES:-exit 0}',
    "scontrol": 'if [ "$1" = show ]; then printf "first\\nsecond\\n"; else echo scontrol "$@" >>"$CALLS"; fi',
}


def options_of_train() -> set[str]:
    group = get_command(app)
    context = group.make_context("heedful", ["train"], resilient_parsing=True)
    train = group.get_command(context, "train")  # type: ignore[attr-defined]
    assert train is not None
    return {name for parameter in train.params for name in parameter.opts}


@pytest.fixture
def cluster(tmp_path: Path) -> Path:
    """A folder with fake programs that only print their arguments."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, body in FAKES.items():
        (programs / name).write_text(f"#!/bin/bash\n{body}\n")
        (programs / name).chmod(0o755)
    return tmp_path


def job(cluster: Path, *arguments: str, nodes: int = 1, does: str = "exit 0") -> tuple[int, list[str]]:
    """Run the script; return its exit code and the calls."""
    calls = cluster / "calls"
    calls.write_text("")
    surroundings = {
        "PATH": f"{cluster / 'bin'}:{os.environ['PATH']}",
        "CALLS": str(calls),
        "TORCHRUN_DOES": does,
        "SLURM_NNODES": str(nodes),
        "SLURM_JOB_NODELIST": "first,second",
        "SLURM_JOB_ID": "17",
        "SLURM_GPUS_ON_NODE": "8",
    }
    ran = subprocess.run(["bash", str(SLURM), *arguments], env=surroundings, cwd=cluster, check=False, timeout=60)
    return ran.returncode, calls.read_text().splitlines()


class TestSlurm:
    def test_it_is_a_shell_script(self) -> None:
        assert subprocess.run(["bash", "-n", str(SLURM)], check=False).returncode == 0

    def test_one_machine_starts_a_new_run(self, cluster: Path) -> None:
        code, calls = job(cluster, "a.toml", "runs/a", "--set", "train.max_steps=7")
        assert code == 0
        assert calls == [
            "torchrun --nnodes 1 --nproc-per-node 8 --max-restarts 3 --standalone "
            "-m heedful train a.toml --out runs/a --set train.max_steps=7"
        ]

    def test_two_machines_connect_to_the_first(self, cluster: Path) -> None:
        code, calls = job(cluster, "a.toml", "runs/a", nodes=2)
        assert code == 0
        assert calls == [
            "torchrun --nnodes 2 --nproc-per-node 8 --max-restarts 3 --rdzv-backend c10d --rdzv-endpoint first:29500 "
            "--rdzv-id 17 -m heedful train a.toml --out runs/a"
        ]

    def test_a_run_that_exists_is_resumed(self, cluster: Path) -> None:
        (cluster / "runs/a").mkdir(parents=True)
        (cluster / "runs/a/experiment.toml").touch()
        _, calls = job(cluster, "a.toml", "runs/a", "--set", "train.max_steps=7")
        assert calls[0].endswith("-m heedful train --resume runs/a")

    @pytest.mark.parametrize("signal", ["USR1", "TERM"])
    def test_after_a_signal_the_training_saves_and_the_job_is_requeued(self, cluster: Path, signal: str) -> None:
        """The fake torchrun signals the script, as Slurm does, and then waits for SIGTERM, as the real one would."""
        saver = cluster / "bin" / "saver"
        saver.write_text(
            "#!/bin/bash\ntrap 'echo saved >>\"$CALLS\"; exit 1' TERM\n"
            f"kill -{signal} $PPID_OF_JOB\nwhile :; do sleep 0.05; done\n"
        )
        saver.chmod(0o755)
        # The fake `srun` and `torchrun` replace themselves by their commands, so the script is the parent.
        code, calls = job(cluster, "a.toml", "runs/a", does="eval PPID_OF_JOB=$PPID exec saver")
        assert code == 75
        assert calls[1:] == ["saved", "scontrol requeue 17"]

    def test_a_signal_before_the_training_has_started_requeues_the_job(self, cluster: Path) -> None:
        """The fake `scontrol show` signals the script, whose process is the parent of its subshell."""
        (cluster / "bin" / "scontrol").write_text(
            '#!/bin/bash\nif [ "$1" = show ]; then kill -USR1 "$(ps -o ppid= -p $PPID | tr -d " ")"; echo first\n'
            'else echo scontrol "$@" >>"$CALLS"; fi\n'
        )
        code, calls = job(cluster, "a.toml", "runs/a", nodes=2, does="sleep 30")
        assert code == 75
        assert calls[-1] == "scontrol requeue 17"

    def test_a_failed_job_is_not_requeued(self, cluster: Path) -> None:
        code, calls = job(cluster, "a.toml", "runs/a", does="exit 3")
        assert code == 3
        assert len(calls) == 1

    def test_without_a_run_folder_it_prints_its_usage(self, cluster: Path) -> None:
        assert job(cluster, "a.toml") == (2, [])

    def test_it_asks_slurm_for_an_early_signal_and_for_requeueing(self) -> None:
        asked = re.findall(r"^#SBATCH (.*)$", SLURM.read_text(), re.MULTILINE)
        assert "--signal=B:USR1@300" in asked
        assert "--requeue" in asked
        assert "--ntasks-per-node=1" in asked


class TestKubernetes:
    @pytest.fixture
    def spec(self) -> dict[str, Any]:
        yaml = pytest.importorskip("yaml")  # installed with transformers
        read = yaml.safe_load(KUBERNETES.read_text())
        assert (read["apiVersion"], read["kind"]) == ("batch/v1", "Job")
        return read["spec"]

    def test_an_evicted_pod_does_not_count_as_a_failure(self, spec: dict[str, Any]) -> None:
        assert spec["podFailurePolicy"]["rules"] == [
            {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}
        ]
        assert spec["template"]["spec"]["restartPolicy"] == "Never"  # required by such a policy
        assert spec["backoffLimit"] > 0

    def test_it_has_a_gpu_for_each_process_and_time_to_save(self, spec: dict[str, Any]) -> None:
        pod = spec["template"]["spec"]
        (container,) = pod["containers"]
        assert f"--nproc-per-node {container['resources']['limits']['nvidia.com/gpu']} " in container["args"][0]
        waits = {variable["name"]: variable["value"] for variable in container["env"]}
        assert 30 < int(waits["TORCH_ELASTIC_SHUTDOWN_TIMEOUT"]) < pod["terminationGracePeriodSeconds"]
        assert (ROOT / waits["RECIPE"]).exists()

    def test_every_mounted_volume_exists(self, spec: dict[str, Any]) -> None:
        pod = spec["template"]["spec"]
        mounted = {mount["name"] for mount in pod["containers"][0]["volumeMounts"]}
        assert mounted == {volume["name"] for volume in pod["volumes"]}

    @pytest.mark.parametrize("exists", [False, True])
    def test_its_command_starts_or_resumes_a_run(self, spec: dict[str, Any], cluster: Path, exists: bool) -> None:
        container = spec["template"]["spec"]["containers"][0]
        variables = {variable["name"]: variable["value"] for variable in container["env"]}
        if exists:
            (cluster / variables["RUN"]).mkdir(parents=True)
            (cluster / variables["RUN"] / "experiment.toml").touch()
        surroundings = variables | {"PATH": f"{cluster / 'bin'}:{os.environ['PATH']}", "CALLS": str(cluster / "calls")}
        subprocess.run(
            [*container["command"], *container["args"]], env=surroundings, cwd=cluster, check=True, timeout=60
        )
        (call,) = (cluster / "calls").read_text().splitlines()
        words = call.partition(" -m heedful ")[2]
        if exists:
            assert words == "train --resume runs/paper-base-en-de"
        else:
            assert words == "train recipes/paper-base-en-de.toml --out runs/paper-base-en-de"


def test_every_option_given_to_heedful_exists() -> None:
    known = options_of_train()
    text = SLURM.read_text() + KUBERNETES.read_text()
    given = [word for line in re.findall(r"\btrain ([^\n)]*--[^\n)]*)", text) for word in shlex.split(line)]
    options = {word for word in given if word.startswith("--")}
    assert {"--resume", "--out"} <= options
    assert options <= known


@pytest.mark.parametrize("name", PAPER)
def test_the_papers_recipes_have_its_batch_size_on_any_number_of_gpus(name: str) -> None:
    experiment = make_experiment(load_recipe(ROOT / "recipes" / f"{name}.toml"))
    assert (experiment.train.batch_tokens, experiment.train.accumulate) == (25_000, 1)
    assert experiment.train.precision == "auto"
    assert experiment.train.device == "auto"
