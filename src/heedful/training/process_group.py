"""The processes of one training: which of them this is, and how they agree.

`torchrun` starts them, gives each its number in the environment, and holds a store through which they communicate.
Without these variables a process is alone and does not use `torch.distributed`. Every process runs the same code; some
work is done by the first process alone, and the others wait for its result.
"""

import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from threading import Event, Thread
from typing import Any, TypeVar
from uuid import uuid4

import torch
import torch.distributed as dist

from heedful.config import Device, TrainConfig
from heedful.device import choose_device
from heedful.errors import ConfigError, HeedfulError, Unanswered

T = TypeVar("T")

_FAILED = "failed"  # a key of the store
_TORCHRUN = {"RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}
_POLL = 0.02  # seconds between two reads of the store
_HEARTBEAT = 0.25  # seconds between two heartbeats
_GRACE = 3.0  # seconds within which every live process has a heartbeat


class ProcessGroup:
    """A process that trains alone; `TorchrunGroup` is one of several."""

    rank = 0
    world_size = 1
    local_world_size = 1  # processes on this machine
    step = 0  # the current update, for error messages

    @property
    def is_first(self) -> bool:
        """Whether this is the process that writes files and messages."""
        return self.rank == 0

    def device(self, wanted: Device) -> torch.device:
        """The device of this process."""
        return choose_device(wanted)

    def claim(self, folder: Path) -> None:
        """Record that this training has made the folder."""

    def has_claimed(self, folder: Path) -> bool:
        """Whether this training made the folder before torchrun restarted its processes."""
        return False

    def connect(self, minutes: float) -> None:
        """Connect the processes; one that does not answer within so many minutes is considered lost."""

    def run_on_first(self, work: Callable[[], T]) -> T:
        """Call `work` in the first process, however long it takes; all get its result, which must be JSON."""
        return work()

    def agree_on(self, reason: str) -> str:
        """The first non-empty reason of any process, or an empty string; all get the same."""
        return reason

    def sum_over_processes(self, number: float) -> float:
        """The sum of `number` over all processes."""
        return number

    def leave(self) -> None:
        """Disconnect the processes."""


class TorchrunGroup(ProcessGroup):
    """One of several processes that `torchrun` started."""

    def __init__(self) -> None:
        self._wait = timedelta(minutes=TrainConfig().timeout_minutes)
        self._torchrun, self.rank, self.world_size = _connect_to_store(self._wait)
        self.local_rank, self.local_world_size = int(os.environ["LOCAL_RANK"]), int(os.environ["LOCAL_WORLD_SIZE"])
        self._turn = 0
        self._over = Event()
        # The store survives a restart of the processes, so each start has its own keys.
        self._token = uuid4().hex
        if not self.is_first:
            self._token = self._meet_first()
        self._heartbeat = Thread(target=self._send_heartbeats, name="heartbeat", daemon=True)
        self._heartbeat.start()
        self._store = dist.PrefixStore(self._token, self._torchrun)  # type: ignore[attr-defined]

    def _meet_first(self) -> str:
        """Call the first process of this start until it answers with the prefix of its keys."""
        call, until = uuid4().hex, time.monotonic() + self._wait.total_seconds()
        self._torchrun.set(f"heedful-call-{self.rank}", call)
        while not self._torchrun.check([f"heedful-answer-{call}"]):
            if time.monotonic() > until:
                raise Unanswered(self._describe_loss([0], timed_out=True))
            time.sleep(_POLL)
        return self._torchrun.get(f"heedful-answer-{call}").decode()

    def _send_heartbeats(self) -> None:
        """Send heartbeats from a thread of its own; in the first process, also answer the calls of the others."""
        calls = [f"heedful-call-{rank}" for rank in range(1, self.world_size)] if self.is_first else []
        answered: set[bytes] = set()
        beats = 0
        with suppress(RuntimeError):  # if the store is gone, the main thread will notice soon enough
            # A separate connection, because the other one may be waiting for just those processes that call here.
            store, *_ = _connect_to_store(self._wait)
            while not self._over.wait(_HEARTBEAT):
                for call in [store.get(key) for key in calls if store.check([key])]:
                    if call not in answered:
                        store.set(f"heedful-answer-{call.decode()}", self._token)
                        answered.add(call)
                beats += 1
                store.set(f"{self._token}/beat-{self.rank}", str(beats))

    def claim(self, folder: Path) -> None:
        """Record it in the store, which lives as long as torchrun."""
        self._torchrun.set("heedful-folder", str(folder.resolve()))

    def has_claimed(self, folder: Path) -> bool:
        """Only for a folder that it claimed itself: an older one of that name must not be written to."""
        known = self._torchrun.check(["heedful-folder"])
        return known and self._torchrun.get("heedful-folder").decode() == str(folder.resolve())

    def device(self, wanted: Device) -> torch.device:
        """On a machine with GPUs, each process has its own."""
        if wanted == "auto":
            wanted = "cuda" if torch.cuda.is_available() else "cpu"
        device = choose_device(wanted)
        if device.type == "mps":
            raise ConfigError(
                "several processes cannot share train.device = 'mps'; choose cpu, or train without torchrun"
            )
        if device.type == "cuda":
            if self.local_rank >= torch.cuda.device_count():
                raise ConfigError(
                    f"{self.local_world_size} processes, but this machine has {torch.cuda.device_count()} GPUs; "
                    "give torchrun one process for each with --nproc-per-node"
                )
            torch.cuda.set_device(self.local_rank)
            device = torch.device("cuda", self.local_rank)
        return device

    def connect(self, minutes: float) -> None:
        """Connect with gloo for tensors in memory and NCCL for tensors on GPUs."""
        self._wait = timedelta(minutes=minutes)
        if self.world_size == 1:
            return
        backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
        # On GPUs, `sum_over_processes` must notice a hang first: it uses gloo and can say which process it was.
        wait = 2 * self._wait if torch.cuda.is_available() else self._wait
        dist.init_process_group(backend, store=self._store, rank=self.rank, world_size=self.world_size, timeout=wait)

    def run_on_first(self, work: Callable[[], T]) -> T:
        """Uses the store, because a collective operation would time out during a long validation."""
        self._turn += 1
        key = f"turn-{self._turn}"
        if not self.is_first:
            return self._wait_for(key)
        result = work()
        self._store.set(key, json.dumps(result))
        return result

    def _wait_for(self, key: str) -> Any:
        """Wait for a value from the first process for as long as that has a heartbeat."""
        heard, since = b"", time.monotonic()
        while not self._store.check([key]):
            self._stop_if_failed()
            if (beat := self._beat_of(0)) != heard:
                heard, since = beat, time.monotonic()
            if time.monotonic() - since > self._wait.total_seconds():
                raise Unanswered(self._describe_loss([0], timed_out=True))
            time.sleep(_POLL)
        return json.loads(self._store.get(key))

    def _beat_of(self, rank: int) -> bytes:
        key = f"beat-{rank}"
        return self._store.get(key) if self._store.check([key]) else b""

    def fail(self, code: int) -> bool:
        """Make the others exit with this code; True in the process that should report the error."""
        try:
            self._store.set(_FAILED, str(code))
            return self._store.add("reported", 1) == 1
        except RuntimeError:
            return True

    def _stop_if_failed(self) -> None:
        if self._store.check([_FAILED]):
            raise SystemExit(int(self._store.get(_FAILED)))

    def agree_on(self, reason: str) -> str:
        """Costs one small sum, unless some process has a reason."""
        if self.world_size == 1 or not self.sum_over_processes(bool(reason)):
            return reason
        reasons: list[str] = [""] * self.world_size
        dist.all_gather_object(reasons, reason)
        return next(filter(None, reasons))

    def sum_over_processes(self, number: float) -> float:
        """The sum in double precision."""
        if self.world_size == 1:
            return number
        sums = torch.tensor([number], dtype=torch.float64)
        dist.all_reduce(sums, async_op=True).wait(self._wait)
        return sums.item()

    def leave(self) -> None:
        """Close the connections; only called when all processes have finished."""
        self._over.set()
        self._heartbeat.join()
        if dist.is_initialized():
            self.sum_over_processes(0.0)  # so that no process still calls the first one when it exits
            dist.destroy_process_group()

    def missing(self, error: RuntimeError) -> Unanswered:
        """Find the lost processes: those without a heartbeat, or else those that have not noticed the error."""
        timed_out = "timed out" in str(error).lower() or "timeout" in str(error).lower()
        everyone = range(self.world_size)
        try:
            self._store.set(f"noticed-{self.rank}", "yes")
            before = [self._beat_of(rank) for rank in everyone]
            time.sleep(_GRACE)
            self._stop_if_failed()
            lost = [rank for rank in everyone if self._beat_of(rank) == before[rank]]
            lost = lost or [rank for rank in everyone if not self._store.check([f"noticed-{rank}"])]
        except RuntimeError:
            return Unanswered(f"process {self.rank} lost torchrun at step {self.step}; continue with --resume")
        return Unanswered(self._describe_loss(lost, timed_out))

    def _describe_loss(self, lost: list[int], timed_out: bool) -> str:
        one = len(lost) == 1
        who = f"process{'' if one else 'es'} {', '.join(map(str, lost))}" if lost else "a connection between processes"
        if timed_out:
            minutes = self._wait.total_seconds() / 60.0
            what = f"did not answer within train.timeout_minutes = {minutes:g}"
        else:
            what = "was lost" if one or not lost else "were lost"
        return (
            f"{who} {what} at step {self.step} (of processes 0 to {self.world_size - 1}); "
            "the last checkpoint is intact: continue with --resume, or let torchrun do so with --max-restarts"
        )


@contextmanager
def join_process_group() -> Iterator[ProcessGroup]:
    """Join the processes that torchrun started, or train alone."""
    if not os.environ.keys() >= _TORCHRUN:
        yield ProcessGroup()
        return
    group = TorchrunGroup()
    try:
        yield group
    except HeedfulError as error:
        raise _report_once(group, error) from error
    except RuntimeError as error:
        if not _is_connection_error(error):
            group.fail(HeedfulError.exit_code)
            raise
        raise _report_once(group, group.missing(error)) from error
    except BaseException as error:
        group.fail(error.code if isinstance(error, SystemExit) and isinstance(error.code, int) else 1)
        raise
    group.leave()


def is_first_process() -> bool:
    """Whether this process trains alone or is the first of those that torchrun started."""
    return not os.environ.keys() >= _TORCHRUN or os.environ["RANK"] == "0"


def _report_once(group: TorchrunGroup, error: HeedfulError) -> BaseException:
    """The exception to raise: all processes find many mistakes at the same time, but only one reports them."""
    if not group.fail(error.exit_code):
        return SystemExit(error.exit_code)
    if group.is_first or isinstance(error, Unanswered):
        return error
    named = HeedfulError(f"process {group.rank}: {error}")
    named.exit_code = error.exit_code
    return named


def _connect_to_store(wait: timedelta) -> tuple[Any, int, int]:
    """A connection to the store, the rank of this process, and the number of processes."""
    from torch.distributed.rendezvous import rendezvous

    return next(iter(rendezvous("env://", timeout=wait)))


def _is_connection_error(error: RuntimeError) -> bool:
    """Whether an operation failed because of another process."""
    words = str(error).lower()
    return isinstance(error, dist.DistError) or any(name in words for name in ("gloo", "nccl", "operation timed out"))
