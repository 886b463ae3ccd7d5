"""The parts of `regression.py`: data, networks, methods, tables, picture."""
