"""The seed generator behind every random op that was given no seed."""

# Keras keeps it under no public name, and a resumed run must find it where the
# killed one left it.
from keras.src.random.seed_generator import global_seed_generator

__all__ = ["global_seed_generator"]
