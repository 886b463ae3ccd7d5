"""Schedules of learning rates, temperatures and KL weights.

An argument that accepts a schedule of Keras also accepts these schedules.
"""

from keras_bdl.schedules._cyclical_cosine import CyclicalCosine
from keras_bdl.schedules._linear_ramp import LinearRamp
from keras_bdl.schedules._swa_schedule import SWASchedule

__all__ = ["CyclicalCosine", "LinearRamp", "SWASchedule"]
