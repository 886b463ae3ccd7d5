"""Training on several devices or machines.

This folder has strategies, and repairs of Keras for them. All other code runs
unchanged under a strategy.
"""

from keras_bdl.distribute.keras_fixes import mend_keras
from keras_bdl.distribute.strategy import strategy
from keras_bdl.distribute.workers import is_chief
from keras_bdl.distribute.workers import wait_for_all

__all__ = ["is_chief", "mend_keras", "strategy", "wait_for_all"]
