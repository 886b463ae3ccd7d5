"""The parts of `defaults.py`: the sets of the panel, the settings, the runs."""
