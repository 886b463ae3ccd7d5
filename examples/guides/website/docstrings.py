"""Markdown of docstrings."""

import re
import textwrap

from website.equations import is_equation
from website.equations import typeset

# Sections of entries `name: text`, and of text.
ENTRIES = ("Args", "Attributes", "Call arguments", "Raises")
TEXTS = ("Returns", "Yields", "Output shape", "Reference", "Example")
TITLES = {"Args": "Arguments", "Reference": "References"}
ENTRY = re.compile(r"^([*`\w][\w\s,*`.\[\]]*?):(?:\s+(.*))?$", re.DOTALL)


def to_markdown(docstring: str) -> str:
    """Returns a docstring as Markdown: sections, equations, lists, examples.

    Args:
        docstring: As `inspect.getdoc` returns it.
    """
    out, block, section, fenced = [], [], None, False

    def flush():
        if block:
            lines = _block("\n".join(block), section)
            out.extend(["", *lines, ""])
        block.clear()

    for line in docstring.splitlines():
        is_fence = line.startswith("```")
        fenced ^= is_fence
        title = line.removesuffix(":")
        if not (fenced or is_fence) and (line[:4].isspace() or not line):
            block.append(line)
            continue
        flush()
        if title != line and title in ENTRIES + TEXTS:
            section = title
            line = f"**{TITLES.get(title, title)}**\n"
        out.append(line)
    flush()
    return re.sub(r"\n{3,}", "\n\n", "\n".join(out)).strip() + "\n"


def _block(block, section):
    """Returns the lines of an indented block as Markdown."""
    text = textwrap.dedent(block).strip("\n")
    if not text.strip():
        return []
    if section in ENTRIES:
        return [line for entry in _entries(text) for line in entry]
    if section is not None:
        return text.splitlines()
    if is_equation(block):
        return [typeset(block)]
    return ["```text", text, "```"]


def _entries(text):
    """Yields each entry `name: text` as lines of a definition list."""
    for entry in re.split(r"\n(?=\S)", text):
        found = ENTRY.match(entry)
        if found is None:
            yield [entry, ""]
            continue
        names = [f"`{n.strip(' `')}`" for n in found[1].split(",")]
        body = textwrap.dedent(
            re.sub(r"^(\S.*\n?)", r"    \1", found[2] or "", count=1)
        )
        lines = textwrap.indent(body.strip(), "    ").strip().splitlines()
        yield [", ".join(names), ":   " + "\n".join(lines), ""]
