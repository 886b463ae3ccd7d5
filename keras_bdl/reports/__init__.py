"""Reports that print as tables: the base class and the tables.

Reports on predictions are in `keras_bdl.evaluation`, reports on the inference
in `keras_bdl.diagnostics`.
"""

__all__ = []
