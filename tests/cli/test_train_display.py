"""The time left that training shows."""

from heedful.cli.console import Display
from heedful.cli.train import EventDisplay
from heedful.training.events import Started, StepDone


class Recorder(Display):
    """Keeps the notes instead of showing them."""

    def __init__(self) -> None:
        super().__init__(None)
        self.notes: list[str] = []

    def say(self, sentence: str) -> None:
        pass

    def show(self, what: str, done: int, total: int, note: str) -> None:
        self.notes.append(note)


def notes_of(twice_from: int | None, seconds: list[float]) -> list[str]:
    """The notes after updates of 100 tokens that took so long, of 20 updates in all."""
    shown = Recorder()
    display = EventDisplay(shown, as_json=False)
    display.show(Started(0, 20, None, 5, 3, 1, "cpu", twice_from=twice_from))
    for step, one in enumerate(seconds, start=1):
        display.show(StepDone(step, 0, 1.0, 0.1, 1.0, 100, 100 / one, 0))
    return shown.notes


def test_equal_updates_take_equal_time() -> None:
    assert notes_of(None, [2.0, 2.0])[1].endswith("36 s left")


def test_updates_that_read_their_pairs_twice_take_twice_the_time() -> None:
    before, after = [2.0] * 10, [4.0] * 5
    notes = notes_of(10, [*before, *after])
    assert notes[0].endswith(f"{9 * 2 + 10 * 4} s left")
    assert notes[9].endswith(f"{10 * 4} s left")
    assert notes[14].endswith(f"{5 * 4} s left")
