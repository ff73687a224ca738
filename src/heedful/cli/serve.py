"""`heedful serve` and `heedful key`"""

import sys
from pathlib import Path
from typing import Annotated

import typer

from heedful.cli import console
from heedful.cli.common import DeviceOption, EngineOption, parse_device, parse_engine
from heedful.errors import ConfigError
from heedful.process_memory import keep_freed_memory, share_freed_memory

ModelsArgument = Annotated[
    list[Path] | None,
    typer.Argument(metavar="[MODEL]...", help="Run folders or names of built-in models; default: all built-in models."),
]
LanguagesOption = Annotated[
    list[str] | None,
    typer.Option(help="Languages of a model that does not say them, such as en-de. Once per model."),
]
PicturesOption = Annotated[
    list[Path] | None,
    typer.Option(help="A folder of pictures for /v1/find, read at the start, with its sub-folders. Repeatable."),
]
KeysOption = Annotated[Path | None, typer.Option(help="Require API keys, from a file written by heedful key.")]
AnyoneOption = Annotated[bool, typer.Option("--anyone", help="Serve other machines without API keys.")]
CorsOption = Annotated[
    list[str] | None,
    typer.Option(help="An origin whose pages may send requests, such as https://example.com. Repeatable."),
]
CharactersOption = Annotated[int, typer.Option(min=1, help="Most characters in a request.")]
SecondsOption = Annotated[float, typer.Option(min=1, help="Most seconds for a request.")]
LogOption = Annotated[bool, typer.Option("--json-log", help="Log one JSON object per line.")]


def serve(
    runs: ModelsArgument = None,
    host: Annotated[str, typer.Option(help="Address to listen on; default: this machine only.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 takes any free port.")] = 5000,
    languages: LanguagesOption = None,
    pictures: PicturesOption = None,
    keys: KeysOption = None,
    anyone: AnyoneOption = False,
    cors: CorsOption = None,
    characters: CharactersOption = 50_000,
    seconds: SecondsOption = 60.0,
    json_log: LogOption = False,
    device: DeviceOption = "auto",
    engine: EngineOption = "auto",
) -> None:
    """Translate over HTTP, with a web page, LibreTranslate's API and our own.

    SIGTERM or Ctrl-C stops the server once all accepted requests are answered. SIGHUP reloads weights and keys.
    """
    from heedful.serve.listener import is_loopback, listen, raise_descriptor_limit, url_of
    from heedful.serve.request_log import log_to_stderr
    from heedful.serve.supervisor import Worker, supervise

    is_local = is_loopback(host)
    if not is_local and not keys and not anyone:
        raise ConfigError(
            f"--host {host} serves other machines; give --keys FILE, or --anyone to serve them without keys"
        )
    worker = None if sys.platform == "win32" else Worker.inherit()
    if not worker and sys.platform != "win32":
        with listen(host, port) as own:  # the supervisor leaves everything else to its worker, and so stays small
            log_to_stderr(json_log)
            raise typer.Exit(supervise(own))

    from heedful.serve.api_keys import ApiKeys
    from heedful.serve.app import create_app
    from heedful.serve.batcher import SHARED_LANES
    from heedful.serve.classification_routes import load_classifiers
    from heedful.serve.completion_routes import load_completers
    from heedful.serve.embedding_routes import load_embedders
    from heedful.serve.finder_routes import load_finders
    from heedful.serve.middleware import check_origin, own_hosts
    from heedful.serve.model_registry import ModelRegistry, locate_models, split_by_task
    from heedful.serve.server import Server
    from heedful.serve.service import Service, ServiceLimits
    from heedful.translation.translator import Translator

    origins = [check_origin(origin) for origin in cors or ()]
    where, choice = parse_device(device), parse_engine(engine)

    def load(folder: Path) -> Translator:
        return Translator.load(folder, where, choice, callers=SHARED_LANES)

    keep_freed_memory()
    share_freed_memory()
    raise_descriptor_limit()
    api_keys = ApiKeys(keys)
    split = split_by_task(runs or ())
    # The page and most routes translate, so there are always models for that.
    locations = locate_models(split.translators or _find_built_in_models(), languages or ())
    completions, classifications = load_completers(split.completers, where), load_classifiers(split.classifiers, where)
    embeddings = load_embedders(split.embedders, where)
    findings = load_finders(split.finders, pictures or (), where)
    log_to_stderr(json_log)
    with worker.listener if worker else listen(host, port) as listener:
        limits = ServiceLimits(characters=characters, seconds=seconds)
        service = Service(ModelRegistry(locations, load), limits, api_keys)
        hosts = own_hosts(host) if is_local else ()
        app = create_app(
            service,
            hosts=hosts,
            origins=origins,
            completions=completions,
            classifications=classifications,
            embeddings=embeddings,
            findings=findings,
        )
        server = Server(app, service.reload)
        for location in locations:
            console.say(f"{location.name}: {location.source} to {location.target}")
        for names, what in (
            (split.completers, "continues texts, at /v1/complete"),
            (split.classifiers, "labels what it is sent, at /v1/classify and on the page /classify"),
            (split.embedders, "turns texts into vectors, at /v1/embed"),
            (split.finders, "finds pictures, at /v1/find and on the page /find"),
        ):
            for name in names:
                console.say(f"{name}: {what}")
        for notice in embeddings.notices:
            console.say(f"note: {notice}")
        console.say(f"{url_of(listener)} is ready; stop it with Ctrl-C")
        if worker:
            worker.report_ready()
        server.run([listener])


def _find_built_in_models() -> list[Path]:
    from heedful.storage.model_names import built_in_models

    if not (known := built_in_models()):
        raise ConfigError("no model is given, and none is built in; name a run folder")
    return list(known.values())


def key(
    file: Annotated[Path, typer.Argument(help="File of key hashes; created if it does not exist.")],
    name: Annotated[str, typer.Argument(help="Owner of the key; a key of the same name is replaced.")],
    per_minute: Annotated[int, typer.Option(min=1, help="Most requests per minute.")] = 60,
) -> None:
    """Create an API key for `heedful serve --keys FILE` and print it. The file has only its hash: save the key now."""
    from heedful.serve.api_keys import add_key

    console.out(add_key(file, name, per_minute))
    console.say(f"{file} has the hash of the key of {name}; send SIGHUP to a running server to load it")
