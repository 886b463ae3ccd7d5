"""Base class of reports, and the tables that they print.

`keras_bdl.evaluation` has the reports on predictions, `keras_bdl.diagnostics`
the reports on inference.
"""

__all__ = []
