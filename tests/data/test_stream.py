"""Streams of texts."""

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import toy

from heedful.data import stream
from heedful.data.stream import TextStream, map_in_threads


def test_arrived_texts_do_not_wait_for_more() -> None:
    go_on = threading.Event()

    def slow() -> Iterator[str]:
        yield from ["one", "two"]
        go_on.wait()
        yield "three"

    arriving = TextStream(slow()).read_windows()
    texts = next(arriving)
    if texts == ["one"]:
        texts += next(arriving)
    assert texts == ["one", "two"]
    go_on.set()
    assert list(arriving) == [["three"]]


def test_arriving_texts_come_in_windows_of_a_bounded_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "WINDOW", 4)
    read = 0

    def endless() -> Iterator[str]:
        nonlocal read
        while True:
            read += 1
            yield str(read)

    found = TextStream(endless()).read_windows()
    texts: list[str] = []
    while len(texts) < 100:
        window = next(found)
        assert 1 <= len(window) <= 4
        texts += window
        time.sleep(0)
        assert read <= len(texts) + 10  # the queue, the text that waits for a place in it, and the one that was made
    assert texts == [str(number + 1) for number in range(len(texts))]


def test_an_error_of_the_source_arrives_after_all_texts_before_it() -> None:
    def broken() -> Iterator[str]:
        yield "one"
        raise UnicodeError("not text")

    found = TextStream(broken()).read_windows()
    assert next(found) == ["one"]
    with pytest.raises(UnicodeError, match="not text"):
        next(found)


@pytest.mark.parametrize("workers", [1, 3])
def test_all_work_is_done_and_errors_are_passed_on(workers: int) -> None:
    assert sorted(map_in_threads(lambda number: number * 2, range(10), workers)) == list(range(0, 20, 2))

    def fail(number: int) -> int:
        raise ValueError(f"not {number}")

    with pytest.raises(ValueError, match=r"not \d"):
        list(map_in_threads(fail, range(10), workers))


def test_work_stops_when_the_caller_does() -> None:
    begun: list[int] = []

    def work(number: int) -> int:
        begun.append(number)
        time.sleep(0.01)
        return number

    found = map_in_threads(work, range(1000), 2)
    next(found)
    found.close()  # type: ignore[attr-defined]
    assert len(begun) < 100


def test_a_mistake_in_a_pipe_that_stays_open_ends_in_a_sentence(trained: Path) -> None:
    command = [sys.executable, "-m", "heedful", "translate", str(trained / "run"), "--beam", "2", "--n-best", "3"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL) as process:
        assert process.stdin
        assert process.stderr
        process.stdin.write(b"one line\n")
        process.stdin.flush()
        assert process.wait(60) == 2
        assert b"Fatal" not in process.stderr.read()


def test_a_pipe_that_stays_open_is_translated_line_by_line(trained: Path) -> None:
    command = [sys.executable, "-m", "heedful", "translate", str(trained / "run")]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdin
        assert process.stdout
        for sentence in (*toy.sentences(3, seed=1), ""):
            process.stdin.write(sentence + "\n")
            process.stdin.flush()
            answer = process.stdout.readline()  # or it would wait here for ever
            assert answer.endswith("\n")
            assert bool(answer.strip()) == bool(sentence)
        process.stdin.close()
        assert process.wait(30) == 0
