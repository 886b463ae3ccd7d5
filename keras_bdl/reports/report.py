"""What the reports on a prediction have in common."""

import dataclasses

from keras_bdl.reports.table import format_tables


@dataclasses.dataclass(frozen=True)
class Report:
    """Numbers by name, as attributes or items, that print as a table.

    A number that is not defined for the data, such as a ranking of right
    above wrong where nothing is wrong, is NaN and prints as "n/a".
    """

    def __getitem__(self, name):
        return self.to_dict()[name]

    def keys(self):
        """Returns the names of the numbers, so that `dict(report)` works."""
        return self.to_dict().keys()

    def to_dict(self) -> dict:
        """Returns the numbers as a dict of plain Python types."""
        return dataclasses.asdict(self)

    def __str__(self):
        return format_tables(self.title(), self.sections())

    def title(self) -> str:
        """Returns the first line."""
        raise NotImplementedError

    def sections(self) -> list:
        """Returns pairs of the title of a table and its rows."""
        raise NotImplementedError
