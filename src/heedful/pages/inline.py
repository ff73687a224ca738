"""Pages as single files that contain their styles and scripts, and may load no others."""

import base64
import hashlib
import json
import re
from collections.abc import Callable, Mapping
from html import escape
from importlib import resources

# In JSON these characters occur only in strings, where an escape means the same; unescaped, they could end the script.
_ESCAPES = {ord(sign): f"\\u{ord(sign):04x}" for sign in "<>&"}

# The imports and exports that pages use. Everything else is refused, so that a bundle means what its modules mean.
_IMPORT = re.compile(r"^import (\{[^}]*\}) from '\./([\w.-]+)';$", re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:const|class|(?:async )?function\*?) (\w+))", re.MULTILINE)
_OTHER = re.compile(r"^(?:import|export)\b.*", re.MULTILINE)


def asset(name: str, package: str = "pages") -> str:
    """A file from the assets of this package, or else from the assets that all pages share."""
    own, shared = (resources.files(f"heedful.{holder}") / "assets" / name for holder in (package, "pages"))
    return (own if own.is_file() else shared).read_text(encoding="utf-8")


def load_script(name: str, package: str) -> str:
    """A JavaScript module of this package and all that it imports, as one script."""
    return bundle(load_modules(name, lambda imported: asset(imported, package)))


def load_modules(name: str, read: Callable[[str], str]) -> dict[str, str]:
    """A JavaScript module and all that it imports, by name, each after the modules that it needs."""
    modules: dict[str, str] = {}

    def load(name: str, importers: tuple[str, ...]) -> None:
        if name in importers:
            raise ValueError(f"JavaScript modules import each other: {' > '.join((*importers, name))}")
        if name not in modules:
            text = read(name)
            for imported in _IMPORT.finditer(text):
                load(imported[2], (*importers, name))
            modules[name] = text

    load(name, ())
    return modules


def bundle(modules: Mapping[str, str]) -> str:
    """One script that does what these modules do, each in its own scope; they must be in the order of `load_modules`.

    A page from disk may not load modules. As data: or blob: URLs, they would need a policy that lets any script run; a
    single script can be allowed by its digest.
    """
    scopes = []
    for name, text in modules.items():
        exported = ", ".join(_EXPORT.findall(text))
        body = _IMPORT.sub(lambda found: f"const {found[1].replace(' as ', ': ')} = modules['{found[2]}'];", text)
        body = _EXPORT.sub("", body)
        if other := _OTHER.search(body):
            raise ValueError(f"{name} has an import or export that cannot be bundled: {other[0]}")
        scopes.append(f"modules['{name}'] = (() => {{\n{body}\nreturn {{ {exported} }};\n}})();\n")
    return "const modules = {};\n" + "".join(scopes)


def digest(text: str) -> str:
    """The digest by which the policy of a page allows an inlined style or script."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def json_in_page(document: object) -> str:
    """JSON for a script of the type application/json, whatever text it contains.

    It is ASCII: a line separator could end a line of the script, and a file cannot hold a lone surrogate.
    """
    return json.dumps(document, allow_nan=False, separators=(",", ":")).translate(_ESCAPES)


def text_in_page(text: str) -> str:
    """Text, escaped for HTML; a file name that is not valid Unicode gets question marks."""
    return escape(text.encode("utf-8", "replace").decode())


def whole_page(title: str, style: str, script: str, main: str, pictures: str = "'none'") -> str:
    """A page whose policy allows only this style and script, and loads nothing but pictures from where it says."""
    policy = (
        f"default-src 'none'; style-src '{digest(style)}'; script-src '{digest(script)}'; "
        f"img-src {pictures}; "
        "base-uri 'none'; form-action 'none'"
    )
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{text_in_page(title)}</title>
<style>{style}</style>
</head>
<body>
<main>
{main}
</main>
<script type="module">{script}</script>
</body>
</html>
"""
