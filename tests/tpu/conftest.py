import sys
from pathlib import Path

# The scripts import each other as they do when they are started.
sys.path.insert(0, str(Path(__file__).parents[2] / "tpu"))
