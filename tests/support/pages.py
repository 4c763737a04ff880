"""The pages of the documentation: their files, their anchors, and what they link to."""

import re
import unicodedata
from collections.abc import Iterator
from pathlib import Path

from tests.support.places import ROOT

DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *PAGES]
"""What a reader of the project opens. The changelog is apart, because it names files of earlier versions."""
FENCE = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^#{1,6} +(.+?) *$", re.MULTILINE)
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")


def prose(text: str) -> str:
    """Return a page without its blocks of code, in which `#` begins a comment."""
    return FENCE.sub("", text)


def anchors(text: str) -> set[str]:
    """Return the anchors of a page that the site and a viewer of Markdown both make, and those that it sets itself."""
    headings = [re.sub(r"<[^>]+>|`|\[([^\]]*)\]\([^)]*\)", r"\1", head) for head in HEADING.findall(prose(text))]
    return {site_slug(head) for head in headings} | set(re.findall(r'<a id="([^"]+)"', text))


def site_slug(heading: str) -> str:
    """Return the anchor that mkdocs makes of a heading."""
    plain = unicodedata.normalize("NFKD", heading).encode("ascii", "ignore").decode()
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", plain).strip().lower())


def viewer_slug(heading: str) -> str:
    """Return the anchor that GitHub makes of a heading."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def links(document: Path) -> Iterator[tuple[Path, str]]:
    """Yield the file and the anchor ("" without one) of each relative link of a document."""
    for target in LINK.findall(prose(document.read_text(encoding="utf-8"))):
        if not re.match(r"[a-z]+:", target):
            name, _, anchor = target.partition("#")
            yield (document.parent / name).resolve() if name else document, anchor


def is_there(file: Path, anchor: str) -> bool:
    """Return whether a file exists and has an anchor."""
    return file.exists() and (not anchor or anchor in anchors(file.read_text(encoding="utf-8")))
