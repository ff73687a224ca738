"""`heedful serve` and `heedful key`"""

import sys
from pathlib import Path
from typing import Annotated

import typer

from heedful.cli import console
from heedful.cli.common import DeviceOption, EngineOption, parse_device, parse_engine
from heedful.errors import ConfigError, extra
from heedful.process_memory import keep_freed_memory, share_freed_memory

RunsArgument = Annotated[
    list[Path] | None,
    typer.Argument(metavar="[MODEL]...", help="Run folders, or built-in models by name; else all that are built in."),
]
LanguagesOption = Annotated[
    list[str] | None, typer.Option(help="Such as en-de: of a run that does not say them. Once for each run.")
]
KeysOption = Annotated[Path | None, typer.Option(help="Ask for API keys: a file that heedful key has written.")]
AnyoneOption = Annotated[bool, typer.Option("--anyone", help="Serve other machines without keys.")]
CorsOption = Annotated[
    list[str] | None, typer.Option(help="An origin whose pages may ask, say https://example.com. Repeatable.")
]
CharactersOption = Annotated[int, typer.Option(min=1, help="Characters that a request may have.")]
SecondsOption = Annotated[float, typer.Option(min=1, help="Seconds that a request may take.")]
LogOption = Annotated[bool, typer.Option("--json-log", help="Log one JSON object a line.")]


def serve(
    runs: RunsArgument = None,
    host: Annotated[str, typer.Option(help="Where to listen; default is this machine alone.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 is any that is free.")] = 5000,
    languages: LanguagesOption = None,
    keys: KeysOption = None,
    anyone: AnyoneOption = False,
    cors: CorsOption = None,
    characters: CharactersOption = 50_000,
    seconds: SecondsOption = 60.0,
    json_log: LogOption = False,
    device: DeviceOption = "auto",
    engine: EngineOption = "auto",
) -> None:
    """Translate over HTTP, with LibreTranslate's endpoints and our own.

    SIGTERM or Ctrl-C ends it once all that was accepted is answered. SIGHUP takes up new weights and keys.
    """
    try:
        import fastapi  # noqa: F401
        import prometheus_client  # noqa: F401

        from heedful.serve.server import Server, is_loopback, listen, url_of
    except ImportError as error:
        raise ConfigError(f"serving needs {error.name}, which is not installed; {extra('serve')}") from error
    from heedful.serve.api_keys import Keys
    from heedful.serve.app import make_app
    from heedful.serve.limits import Limits
    from heedful.serve.middleware import check_origin, own_names
    from heedful.serve.model_registry import Shelf, places
    from heedful.serve.request_log import log_to_stderr
    from heedful.serve.service import Service
    from heedful.serve.supervisor import inherited, keep
    from heedful.translation.translator import Translator

    only = own_names(host) if is_loopback(host) else ()
    if not only and not keys and not anyone:
        raise ConfigError(f"--host {host} lets other machines ask; give --keys FILE, or --anyone if that is meant")
    origins = [check_origin(origin) for origin in cors or ()]
    where, choice = parse_device(device), parse_engine(engine)

    def load(folder: Path) -> Translator:
        return Translator.load(folder, where, choice)

    keep_freed_memory()
    share_freed_memory()
    known = Keys(keys)
    found = places(runs or _all_built_in(), languages or ())
    log_to_stderr(json_log)
    listener = None if sys.platform == "win32" else inherited()
    if not listener and sys.platform != "win32":
        with listen(host, port) as kept:
            raise typer.Exit(keep(kept))
    with listener or listen(host, port) as listener:
        service = Service(Shelf(found, load), Limits(characters=characters, seconds=seconds), known)
        server = Server(make_app(service, only=only, origins=origins), service.renew)
        for place in found:
            console.say(f"{place.name}: {place.source} to {place.target}")
        console.say(f"{url_of(listener)} translates; end with Ctrl-C")
        server.run([listener])


def _all_built_in() -> list[Path]:
    from heedful.storage.model_names import built_in_models

    if not (known := built_in_models()):
        raise ConfigError("no model is named, and none is built in; name a run folder")
    return list(known.values())


def key(
    file: Annotated[Path, typer.Argument(help="Where the hashes of keys are; made if it is not there.")],
    name: Annotated[str, typer.Argument(help="Whose key it is; one of the same name is replaced.")],
    per_minute: Annotated[int, typer.Option(min=1, help="Requests a minute.")] = 60,
) -> None:
    """Make an API key for `heedful serve --keys FILE`, and print it, once: the file has only its hash."""
    from heedful.serve.api_keys import add_key

    console.out(add_key(file, name, per_minute))
    console.say(f"{file} knows the key of {name}; a running server takes it up at SIGHUP")
