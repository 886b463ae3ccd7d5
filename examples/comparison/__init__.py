"""The parts of `compare.py`: data, training, methods, tables and pictures."""
