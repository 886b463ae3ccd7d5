"""Runs the guides that are Python files, as notebooks."""

import base64
import os
import subprocess
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import as_completed
from pathlib import Path

import jupytext
import nbclient
import nbformat

from website.outputs import PICTURES
from website.outputs import printed_warnings
from website.outputs import shown

QUIET = {"TF_CPP_MIN_LOG_LEVEL": "2", "KERAS_BACKEND": "tensorflow"}
LIMIT = 600


def run_all(guides: list[Path], jobs: int) -> dict[str, nbformat.NotebookNode]:
    """Runs guides, several at a time, and returns them as notebooks.

    Prints a line for each finished guide. The first error of a guide ends the
    run.

    Args:
        guides: Python files in the percent format.
        jobs: How many guides run at a time.
    """
    os.environ.update(QUIET)
    done = {}
    with ThreadPoolExecutor(jobs) as pool:
        running = {pool.submit(_run, guide): guide for guide in guides}
        for future in as_completed(running):
            name = running[future].stem
            try:
                done[name], seconds, warnings = future.result()
            except Exception:
                pool.shutdown(wait=False, cancel_futures=True)
                print(f"{name}: failed")
                raise
            print(
                f"[{len(done)}/{len(guides)}] {name}: {seconds:.0f} s",
                *warnings,
                sep="\n",
                flush=True,
            )
    return done


def _run(guide):
    """Returns a guide as a notebook that ran, its seconds and its warnings."""
    start = time.perf_counter()
    notebook = jupytext.read(guide)
    notebook.metadata.kernelspec = {
        "name": "python3",
        "display_name": "Python 3",
        "language": "python",
    }
    with tempfile.TemporaryDirectory() as folder:
        nbclient.NotebookClient(
            notebook,
            timeout=LIMIT,
            kernel_name="python3",
            resources={"metadata": {"path": folder}},
        ).execute(stderr=subprocess.DEVNULL)
    warnings = []
    for cell in notebook.cells:
        if cell.cell_type == "code":
            warnings += printed_warnings(cell.outputs)
            cell.outputs = shown(cell.outputs)
            cell.metadata.pop("execution", None)
    return notebook, time.perf_counter() - start, warnings


def to_markdown(notebook: nbformat.NotebookNode, stem: str, out: Path) -> str:
    """Returns a notebook as Markdown and writes its pictures.

    Args:
        notebook: The notebook.
        stem: How the names of the pictures begin.
        out: Folder of the pictures.
    """
    lines = []
    pictures = 0
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            lines += [cell.source, ""]
            continue
        lines += ["```python", cell.source, "```", ""]
        for output in cell.get("outputs", []):
            data = output.get("data", {})
            kind = next((k for k in PICTURES if k in data), None)
            if kind is not None:
                pictures += 1
                file = f"{stem}_{pictures}{PICTURES[kind]}"
                raw = data[kind]
                is_text = kind.endswith("xml")
                (out / file).write_bytes(
                    raw.encode() if is_text else base64.b64decode(raw)
                )
                lines += [f"![Picture {pictures}]({file})", ""]
            elif "text/html" in data:
                html = data["text/html"].replace("\n\n", "\n")
                lines += [f'<div class="output">{html}</div>', ""]
            else:
                text = output.get("text") or data.get("text/plain", "")
                lines += ["```{.text .output .no-copy}", text.rstrip()]
                lines += ["```", ""]
    return "\n".join(lines)
