"""The Markdown pages of the repository, as pages of the site."""

import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from pathlib import PurePosixPath

from website.api import page_of
from website.api import source_page
from website.public_names import ROOT
from website.public_names import PublicName
from website.public_names import mentions
from website.public_names import python_guides

LINK = re.compile(r"(?<=\]\()(?!https?:|#|mailto:)([^)#\s]+)(#[^)\s]*)?(?=\))")
FENCE = re.compile(r"(^ *(```+).*?^ *\2`*\s*$)", re.DOTALL | re.MULTILINE)
CODE = re.compile(r"(?<![\[`])`((?:keras_bdl|bdl)\.[^`\n]+)`(?![`\]])")
HEADING = re.compile(r"^# (.+)$", re.MULTILINE)


def title_of(markdown: str) -> str:
    """Returns the first heading of a page."""
    return HEADING.search(markdown)[1]


def navigation(readme: str) -> dict[str, list[str]]:
    """Returns the guides that the README links to, by the headings above them.

    Args:
        readme: Text with a section `## Guides` and tables of links below
            headings `###`.
    """
    section = re.search(r"^## Guides\n(.*?)(?=^## )", readme, re.S | re.M)[1]
    found: dict[str, list[str]] = {}
    for part in re.split(r"^(?=### )", section, flags=re.MULTILINE):
        heading = re.match(r"### (.+)", part)
        for path, _ in LINK.findall(part):
            if not any(path in pages for pages in found.values()):
                title = heading[1] if heading else "Guides"
                found.setdefault(title, []).append(path)
    return found


class Pages:
    """Writes the pages of the repository and everything they link to.

    Args:
        out: Folder of the pages. Paths below it are those of the repository,
            so that relative links stay what they are. The page of a Python
            file has `.md` behind its name.
        names: Every public name by each of its paths.
    """

    def __init__(self, out: Path, names: dict[str, PublicName]):
        self.out = out
        self.names = names
        self.written: dict[str, str] = {}
        self.sources: set[str] = set()
        self.guides = [str(g.relative_to(ROOT)) for g in python_guides()]

    def add(self, path: str, text: str | None = None) -> None:
        """Writes a page, and the pages that it links to.

        Args:
            path: Path of a Markdown file or a Python guide in the repository,
                or of a page that is made.
            text: Markdown. Defaults to the file.
        """
        if path in self.written:
            return
        text = (ROOT / path).read_text() if text is None else text
        if "```" not in text and "![" not in text:
            raise ValueError(f"{path} has no picture and no block of code")
        self.written[path] = text
        here = PurePosixPath(path).parent
        wanted = []

        def link(found):
            target = os.path.normpath(here / found[1])
            wanted.append(target)
            suffix = ".md" if target.endswith(".py") else ""
            return f"{found[1]}{suffix}{found[2] or ''}"

        def prose(part):
            part = LINK.sub(link, part).replace(" ± ", "\u00a0±\u00a0")
            return CODE.sub(lambda x: self._name(x, path), part)

        text = outside_fences(text, prose)
        is_python = path in self.guides
        self.write(f"{path}.md" if is_python else path, text)
        for target in wanted:
            self._want(target)

    def write(self, path: str, text: str) -> None:
        """Writes a text below the folder of the pages."""
        file = self.out / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def used_in(self, name: PublicName) -> dict[str, str]:
        """Returns the guides that mention a public name: paths and titles."""
        found = {}
        for path, text in self.written.items():
            if path.startswith("examples/guides/") or path == "README.md":
                if any(n == name for n in mentions(text, self.names)):
                    page = f"{path}.md" if path in self.guides else path
                    found[page] = title_of(text)
        return found

    def _want(self, target):
        """Writes what a link leads to, if it is a file of the repository."""
        file = ROOT / target
        if target.endswith(".md") and file.exists():
            self.add(target)
        elif target.endswith(".py") and file.exists():
            if target not in self.guides and target not in self.sources:
                self.sources.add(target)
                self.write(f"{target}.md", source_page(PurePosixPath(target)))
        elif file.is_file():
            (self.out / target).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, self.out / target)

    def _name(self, found, path):
        """Returns inline code with a link if it begins with a public name."""
        name = next(mentions(found[1], self.names), None)
        if name is None or page_of(name) == path:
            return found[0]
        page = os.path.relpath(page_of(name), PurePosixPath(path).parent)
        return f"[{found[0]}]({page})"


def outside_fences(text: str, change: Callable[[str], str]) -> str:
    """Returns a page, changed where it is neither code nor a heading."""
    parts = []
    at = 0
    for fence in FENCE.finditer(text):
        parts += [change(text[at : fence.start()]), fence[0]]
        at = fence.end()
    return "".join([*parts, change(text[at:])])
