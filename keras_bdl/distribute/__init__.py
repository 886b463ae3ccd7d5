"""Training on several devices or machines.

Strategies, and repairs of Keras for them. Everything else in `keras_bdl` runs
under a strategy without a change.
"""

from keras_bdl.distribute.keras_fixes import mend_keras
from keras_bdl.distribute.strategy import strategy
from keras_bdl.distribute.workers import is_chief

__all__ = ["is_chief", "mend_keras", "strategy"]
