import runpy
import sys
from pathlib import Path

import matplotlib.pyplot as plt
import pytest
import tensorflow as tf

from tests.helpers import own_garbage

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def run(monkeypatch, capsys):
    """Runs a script as `python` does, in this process: a start costs 5 s."""
    level = tf.get_logger().level

    def run(script, *args):
        script = EXAMPLES / script
        words = map(str, (script, "--smoke", *args))
        monkeypatch.setattr(sys, "argv", list(words))
        monkeypatch.syspath_prepend(script.parent)
        with own_garbage():  # Some scripts call `clear_session`.
            runpy.run_path(str(script), run_name="__main__")
        return capsys.readouterr().out

    yield run
    plt.close("all")
    tf.get_logger().setLevel(level)
