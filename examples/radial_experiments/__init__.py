"""The parts of `radial_robustness.py`: a file for each experiment."""
