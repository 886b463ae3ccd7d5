"""The outcome of a recipe, from which its table or figure is made."""

import dataclasses
from pathlib import Path
from typing import Any

from recipe import Recipe
from session import Session

from keras_bdl.extend import StoragePath


@dataclasses.dataclass(frozen=True, eq=False)
class Outcome:
    """The outcome of a recipe.

    Attributes:
        recipe: The `Recipe`.
        session: The `Session`. A module of `show` that needs no cells trains
            its own networks in this session.
        results: A list with a `Result` for each seed, by cell.
        folder: Folder of the table or figure.
    """

    recipe: Recipe
    session: Session
    results: dict[Any, list]
    folder: Path

    def save(self, figure, name):
        """Writes a figure, and returns the name of its file.

        Args:
            figure: The figure.
            name: The name without its suffix.
        """
        file = f"{name}.png"
        with StoragePath(self.folder / file).replaced() as written:
            figure.savefig(written, dpi=150, format="png")
        return file
