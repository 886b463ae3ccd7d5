"""What a reader needs of the outputs of a notebook."""

import re
from typing import Any

# Pictures that a page shows, the first one that an output has.
PICTURES = {"image/svg+xml": ".svg", "image/png": ".png"}
# What TensorFlow logs, for the most part as it starts.
LOGGED = re.compile(
    r"^(?:WARNING: All log|INFO:tensorflow:|[IWE]\d{4} ).*\n?", re.MULTILINE
)
CONTROL = re.compile(r"[\r\b\x1b]")


def printed_warnings(outputs: list[Any]) -> list[str]:
    """Returns what a cell printed as an error, without logs of TensorFlow."""
    errors = (o["text"] for o in outputs if o.get("name") == "stderr")
    return [text for e in errors if (text := LOGGED.sub("", e).strip())]


def shown(outputs: list[Any]) -> list[Any]:
    """Returns the outputs of a cell that a reader needs.

    These are its pictures, its printed text in one piece, and returned values
    that are no Python objects. A progress bar in the text is an error.

    Args:
        outputs: What the cell printed, drew and returned.
    """
    draws = any(PICTURES.keys() & o.get("data", {}).keys() for o in outputs)
    found: list[Any] = []
    for output in outputs:
        if output["output_type"] == "stream":
            text = LOGGED.sub("", output["text"])
            if output["name"] == "stderr" or not text:
                continue
            if CONTROL.search(text):
                raise ValueError(f"A guide prints a progress bar: {text!r}")
            if found and found[-1]["output_type"] == "stream":
                found[-1]["text"] += text
            else:
                found.append(output)
                output["text"] = text
        elif output["output_type"] == "execute_result":
            # A plot returns its axes; " at 0x" is the address of an object.
            if not draws and " at 0x" not in output["data"]["text/plain"]:
                found.append(output)
        else:
            found.append(output)
    return found
