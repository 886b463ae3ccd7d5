"""Plots open no window and leave no figure."""

import matplotlib.pyplot as plt
import pytest


@pytest.fixture(autouse=True)
def no_window_and_no_figure_left(monkeypatch):
    monkeypatch.setattr(plt, "show", lambda: pytest.fail("opened a window"))
    yield
    plt.close("all")
