"""The pictures that were found, as one HTML file."""

import base64
from collections.abc import Sequence
from pathlib import Path

from heedful.data.pictures import make_thumbnail
from heedful.errors import counted
from heedful.pages.inline import asset, text_in_page, whole_page
from heedful.retrieval.finder import FoundPicture

_SIDE = 320  # pixels


def make_results_page(query: str, found: Sequence[FoundPicture], searched: int, picture: Path | None = None) -> str:
    """The page as one HTML file that works from disk, with small copies of the pictures.

    `searched` is the number of pictures that the best were chosen from; `picture` is the one that was asked for.
    """
    asked = f"<p>Like {text_in_page(query)}</p>"
    shown = f'<div class="asked">{_image(picture, "the picture that was given")}{asked}</div>' if picture else ""
    items = "".join(_item(rank, one) for rank, one in enumerate(found, 1))
    main = f"""<h1>{"Similar pictures" if picture else text_in_page(query)}</h1>
{shown}<p>The best {counted(len(found), "picture")} of {searched:,}.</p>
<ol class="found">{items}</ol>
<p class="method">The score is the cosine of the angle between the vectors of the query and of the picture; 1 is the
most. Scores of different models, and of texts and of pictures, cannot be compared.</p>"""
    style = asset("theme.css") + asset("plain.css") + asset("found.css", "retrieval")
    return whole_page(f"{query}: pictures", style, "", main, pictures="data:")


def _item(rank: int, one: FoundPicture) -> str:
    name, filled = Path(one.picture).name, 100.0 * min(1.0, max(0.0, one.score))
    bar = (
        '<svg class="bar" aria-hidden="true"><rect class="track" width="100%" height="100%" rx="2"/>'
        f'<rect class="fill" width="{filled:.2f}%" height="100%" rx="2"/></svg>'
    )
    return (
        f'<li><figure>{_image(Path(one.picture), name)}<figcaption><span class="line"><b>{rank}</b>'
        f'<span>{one.score:.4f}</span></span>{bar}<span class="name">{text_in_page(one.picture)}</span>'
        "</figcaption></figure></li>"
    )


def _image(picture: Path, text: str) -> str:
    content = base64.b64encode(make_thumbnail(picture, _SIDE)).decode()
    return f'<img src="data:image/jpeg;base64,{content}" alt="{text_in_page(text)}">'
