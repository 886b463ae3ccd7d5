"""Schedules of learning rates, temperatures and KL weights.

An argument that accepts a schedule of Keras also accepts these schedules.
"""

from keras_bdl.schedules._schedules import CyclicalCosine
from keras_bdl.schedules._schedules import LinearRamp
from keras_bdl.schedules._schedules import SWASchedule

__all__ = ["CyclicalCosine", "LinearRamp", "SWASchedule"]
