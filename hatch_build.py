"""Writes the description of the package: README.md, whose links a package index could not follow as they are."""

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

_LINK = re.compile(r"(!?)(\[[^\]]*\])\((?![a-z]+:|#)([^)\s]+)\)")


class DescriptionHook(MetadataHookInterface):
    """Adds the description to the metadata of the wheel and the source distribution."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Set the field `readme`."""
        text = Path(self.root, "README.md").read_text(encoding="utf-8")
        address, tag = metadata["urls"]["Repository"], f"v{metadata['version']}"
        metadata["readme"] = {"content-type": "text/markdown", "text": point_to(address, tag, text)}


def point_to(address: str, tag: str, text: str) -> str:
    """The text with relative links and pictures made absolute: the files of this tag in the repository."""

    def replace(link: re.Match[str]) -> str:
        picture, label, path = link.groups()
        return f"{picture}{label}({address}/{'raw' if picture else 'blob'}/{tag}/{path})"

    return _LINK.sub(replace, text)
