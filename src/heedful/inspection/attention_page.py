"""The page that shows every attention head: as one file, or as parts for another page. Nothing here needs PyTorch."""

import base64
import re
import sys
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from heedful.pages.inline import asset, digest, json_in_page, load_modules, load_script, text_in_page

_FULL = 65535  # a weight of one in 16 bits


@dataclass(frozen=True, slots=True)
class ExplorerParts:
    """The explorer of attention heads, for a page to include; `modules` are its JavaScript files by name."""

    html: str
    style: str
    modules: Mapping[str, str]


def load_explorer() -> ExplorerParts:
    """The explorer without a document, which the page around it requests from its server."""
    return ExplorerParts(_asset("explorer.html"), _asset("heads.css"), load_modules("explorer.js", _asset))


def make_attention_page(document: Mapping[str, object]) -> str:
    """The page that shows this document, as one HTML file that works from disk.

    Its policy allows only its own script and style and loads nothing, so no sentence can become code.
    """
    style = _asset("theme.css") + _asset("heads.css")
    script = load_script("standalone.js", "inspection")
    policy = (
        f"default-src 'none'; script-src '{digest(script)}'; style-src '{digest(style)}'; img-src data:; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'"
    )
    parts = {"policy": policy, "style": style, "script": script, "document": json_in_page(document)}
    parts |= {"explorer": _asset("explorer.html"), "summary": _summarise(document)}
    # All at once, so that text that looks like a placeholder stays text.
    return re.sub(r"@@(\w+)@@", lambda mark: parts[mark[1]], _asset("standalone.html"))


def _summarise(document: Mapping[str, Any]) -> str:
    """The page for a browser without JavaScript: both texts, the probabilities, and the strongest link of each head."""
    source = document["source"]
    parts = [f"<p>{_quote(source['text'])}</p>"]
    for hypothesis in document["hypotheses"][:1]:
        pieces = hypothesis["pieces"]
        chips = " ".join(
            f'<span class="chip">{_quote(piece)} <span class="weight">{token["probability"]:.2f}</span></span>'
            for piece, token in zip(pieces, hypothesis["tokens"], strict=True)
        )
        text = hypothesis.get("read")  # of a model that reads prompt and continuation as one text
        read = text or [document["inputs_start"], *pieces[:-1]]
        kinds = (
            ("encoder", document["encoder"], source["pieces"], source["pieces"]),
            ("decoder", hypothesis["decoder"], text or pieces, read),
            ("cross", hypothesis["cross"], pieces, source["pieces"]),
        )
        rows = "".join(_summarise_heads(document, *kind) for kind in kinds)
        parts.append(
            f"<p><strong>{_quote(hypothesis['text'])}</strong></p><p>{chips}</p>"
            "<h2>The strongest link of each head</h2>"
            '<table><thead><tr><th scope="col">head</th><th scope="col">role</th><th scope="col">from</th>'
            f'<th scope="col">to</th><th scope="col">weight</th></tr></thead><tbody>{rows}</tbody></table>'
        )
    return "\n".join(parts)


def _summarise_heads(
    document: Mapping[str, Any], kind: str, layers: Sequence[Mapping[str, Any]], queries: list[str], keys: list[str]
) -> str:
    rows = []
    for number, layer in enumerate(layers, 1):
        weights = array("H", base64.b64decode(layer["weights"]))
        if sys.byteorder == "big":
            weights.byteswap()
        size = layer["queries"] * layer["keys"]
        first = layer["keys"] if kind == "decoder" and layer["queries"] > 1 else 0  # the first row can see one key only
        for head in range(layer["heads"]):
            own = weights[head * size : (head + 1) * size]
            place = own.index(max(own[first:]), first)
            name = f"{kind}.{number}.{head + 1}"
            role = document["roles"].get(name, {}).get("name", "")
            rows.append(
                f'<tr><th scope="row">{name}</th><td>{text_in_page(role)}</td>'
                f"<td>{_quote(queries[place // layer['keys']])}</td><td>{_quote(keys[place % layer['keys']])}</td>"
                f"<td>{own[place] / _FULL:.2f}</td></tr>"
            )
    return "".join(rows)


def _quote(text: str) -> str:
    return f"<bdi>{text_in_page(text)}</bdi>"


def _asset(name: str) -> str:
    return asset(name, "inspection")
