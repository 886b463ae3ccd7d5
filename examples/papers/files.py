"""Names and files of what is kept."""

import hashlib
import json
import os
import re


def digested(*words):
    """Returns a name for a file or folder, ending in a hash.

    Args:
        *words: Begin of the name; of the last one, anything that JSON has a
            word for, the hash.
    """
    text = json.dumps(words[-1], sort_keys=True)
    digest = hashlib.sha256(text.encode()).hexdigest()[:8]
    return re.sub(r"[^\w.+*-]+", "-", "_".join((*words[:-1], digest)))


def write(path, text):
    """Writes a file in one piece.

    Args:
        path: Its path.
        text: What is to be in it.
    """
    part = path.with_suffix(".part")
    part.write_text(text)
    os.replace(part, path)
