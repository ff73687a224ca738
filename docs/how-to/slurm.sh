#!/bin/bash
# Trains on Slurm, and continues by itself after a time limit or a preemption.
#
#   sbatch docs/how-to/slurm.sh recipes/paper-base-en-de.toml runs/paper-base-en-de --set data.folder=PATH/TO/wmt14
#   sbatch --nodes=2 docs/how-to/slurm.sh recipes/paper-big-en-de.toml runs/paper-big-en-de
#
# The arguments are the recipe, the run folder, and any other options of `heedful train` for a new run. The run folder
# must be on a disk that all machines share. Slurm starts one torchrun per machine, which starts one process per GPU.

#SBATCH --job-name=heedful
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=32
#SBATCH --time=08:00:00
#SBATCH --signal=B:USR1@300
#SBATCH --requeue
#SBATCH --open-mode=append

set -u

if [ $# -lt 2 ]; then
    echo "usage: sbatch slurm.sh RECIPE RUN [OPTIONS OF heedful train]" >&2
    exit 2
fi
recipe=$1
run=$2
shift 2

# torchrun's exit code does not say why heedful stopped, so remember that the signal came.
stopped=
step=
told=
tell_step() { # once, because a second SIGTERM would disturb the saving
    if [ -n "$step" ] && [ -z "$told" ]; then
        told=yes
        kill -TERM "$step" 2>/dev/null
    fi
}
stop() {
    stopped=yes
    tell_step
}
trap stop USR1 TERM

if [ -e "$run/experiment.toml" ]; then
    training=(train --resume "$run")
else
    training=(train "$recipe" --out "$run" "$@")
fi

if [ "$SLURM_NNODES" -gt 1 ]; then
    first=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
    meeting=(--rdzv-backend c10d --rdzv-endpoint "$first:29500" --rdzv-id "$SLURM_JOB_ID")
else
    meeting=(--standalone)
fi

export TORCH_ELASTIC_SHUTDOWN_TIMEOUT=240 # seconds to write the checkpoint after SIGTERM; torchrun's default is 30

# srun forwards SIGTERM to torchrun, which forwards it to its processes. They finish the update, save and stop.
srun --kill-on-bad-exit=1 torchrun --nnodes "$SLURM_NNODES" --nproc-per-node "${SLURM_GPUS_ON_NODE:-8}" \
    --max-restarts 3 "${meeting[@]}" -m heedful "${training[@]}" &
step=$!
if [ -n "$stopped" ]; then tell_step; fi # the signal came before `step` was known

wait "$step"
code=$?
while kill -0 "$step" 2>/dev/null; do # a trap ends `wait` early
    wait "$step"
    code=$?
done

if [ -n "$stopped" ]; then
    scontrol requeue "$SLURM_JOB_ID"
    exit 75
fi
exit "$code"
