"""Builds the site of the documentation.

    python -m pip install ".[docs]"
    python examples/guides/build.py [--out results/site] [--only GUIDE]

Runs the guides, writes a page for each public name, and builds a site that
needs no server and no network: open `results/site/index.html`. A broken link, a
page outside the navigation or a guide that fails ends the command with an
error.
"""

import argparse
import logging
import os
import re
import shutil
import sys
import tempfile
import time
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
# Without colours and notices in the log.
os.environ.setdefault("NO_MKDOCS_2_WARNING", "1")

import jupytext
import mkdocs.config
import nbformat
from mkdocs.commands.build import build

import keras_bdl

sys.path.insert(0, str(Path(__file__).parent))
from website import api
from website import notebooks
from website import pages
from website.public_names import GUIDES
from website.public_names import ROOT
from website.public_names import by_path
from website.public_names import folders
from website.public_names import public_names
from website.public_names import python_guides

HERE = Path(__file__).parent / "website"


def local(path):
    """Returns the path of a local file or folder, as an argument."""
    # Also a slip such as "gs:/bucket", which would be a local folder "gs:".
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]+:/", path):
        raise argparse.ArgumentTypeError(f"must be local. Received: {path}")
    return Path(path)


def arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    add = parser.add_argument
    add("--out", type=local, default="results/site")
    add("--no-execute", action="store_true", help="shows guides without output")
    add("--only", metavar="GUIDE", help="runs this guide alone: sampling")
    add("--jobs", type=int, default=2, help="guides that run at a time")
    return parser.parse_args()


def run_guides(options):
    """Returns every Python guide as a notebook, run where asked for."""
    guides = {guide.stem: guide for guide in python_guides()}
    if options.only and options.only not in guides:
        sys.exit(f"--only is one of {', '.join(guides)}")
    chosen = [options.only] if options.only else list(guides)
    if options.no_execute:
        chosen = []
    ran = notebooks.run_all([guides[name] for name in chosen], options.jobs)
    return {
        name: ran.get(name) or jupytext.read(guide)
        for name, guide in guides.items()
    }


def write_guides(site, guides):
    """Writes the pages of the Python guides, and the notebooks."""
    folder = site.out / "examples" / "guides"
    folder.mkdir(parents=True, exist_ok=True)
    for name, notebook in guides.items():
        nbformat.write(notebook, folder / f"{name}.ipynb")
        shutil.copy(GUIDES / f"{name}.py", folder)
        text = notebooks.to_markdown(notebook, name, folder)
        site.add(f"examples/guides/{name}.py", text)
        page = folder / f"{name}.py.md"
        title, rest = page.read_text().split("\n", 1)
        downloads = (
            f"\n[Notebook]({name}.ipynb){{ download }} · "
            f"[Python file]({name}.py){{ download }}\n{{ .downloads }}\n"
        )
        page.write_text(f"{title}\n{downloads}{rest}")


def write_api(site):
    """Writes the pages of the API and returns their navigation."""
    names = public_names()
    everything = {"": keras_bdl, **folders()}
    sections = []
    for folder, module in everything.items():
        inside = [n for n in names if n.folder == folder]
        shown = [n for n in names if not folder and "." not in n.path] or inside
        if not folder:
            short = [n for n in names if any("." not in o for o in n.others)]
            shown = sorted([*shown, *short], key=lambda n: n.name.lower())
        folder = folder or "keras_bdl"
        index = f"api/{folder}/index.md"
        site.add(index, api.folder_page(folder, module, shown))
        own = []
        for name in inside:
            page = api.page_of(name)
            site.add(page, api.name_page(name, site.used_in(name)))
            own.append({name.name: page})
        sections.append({folder: [index, *own]})
    return sections


def main():
    options = arguments()
    start = time.perf_counter()
    guides = run_guides(options)
    with tempfile.TemporaryDirectory() as folder:
        site = pages.Pages(Path(folder), by_path())
        site.add("README.md")
        home = site.out / "README.md"
        home.write_text(f"---\nhide:\n  - navigation\n---\n{home.read_text()}")
        for page in sorted(GUIDES.glob("*.md")):
            site.add(str(page.relative_to(ROOT)))
        write_guides(site, guides)
        navigation = [{"Home": "README.md"}]
        found = pages.navigation((ROOT / "README.md").read_text())
        for title, paths in found.items():
            shown = [f"{p}.md" if p.endswith(".py") else p for p in paths]
            navigation.append({title: shown})
        inside = {"README.md", *(p for paths in found.values() for p in paths)}
        more = [p for p in site.written if p not in inside]
        navigation.append({"API": write_api(site)})
        navigation.append({"More": [p for p in more if p not in site.guides]})
        assets = site.out / "assets"
        assets.mkdir()
        for file in ("site.css", "iframe-worker.js"):
            shutil.copy(HERE / file, assets)
        print(f"building {len(site.written)} pages", flush=True)
        logging.basicConfig(format="%(levelname)s %(message)s")
        config = mkdocs.config.load_config(
            str(HERE / "mkdocs.yml"),
            docs_dir=folder,
            site_dir=str(options.out.resolve()),
            nav=navigation,
            not_in_nav="\n".join(f"/{path}.md" for path in site.sources),
            strict=True,
        )
        build(config)
    seconds = time.perf_counter() - start
    print(f"{options.out}/index.html after {seconds:.0f} s")


if __name__ == "__main__":
    main()
