"""Schedules of learning rates, temperatures and KL weights.

An argument that accepts a schedule of Keras also accepts these schedules.
"""

from keras_bdl.schedules.cyclical_cosine import CyclicalCosine
from keras_bdl.schedules.linear_ramp import LinearRamp
from keras_bdl.schedules.swa_schedule import SWASchedule

__all__ = ["CyclicalCosine", "LinearRamp", "SWASchedule"]
