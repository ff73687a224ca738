"""Command lines, parsed as the program would parse them."""

import shlex

from typer.main import get_command

from heedful.cli.commands import app


def parse(line: str) -> dict[str, object]:
    """What the command line would be given; the command does not run."""
    group = get_command(app)
    words = [word for word in shlex.split(line, comments=True) if word != "--debug"]
    context = group.make_context("heedful", words[:1], resilient_parsing=True)
    found = group.get_command(context, words[0])  # type: ignore[attr-defined]
    assert found is not None, f"there is no command {words[0]}"
    return dict(found.make_context(words[0], words[1:], parent=context).params)
