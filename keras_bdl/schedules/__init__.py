"""Schedules of learning rates, temperatures and KL weights.

Every argument that accepts a schedule of Keras accepts these.
"""

from keras_bdl.schedules.cyclical_cosine import CyclicalCosine
from keras_bdl.schedules.linear_ramp import LinearRamp
from keras_bdl.schedules.swa_schedule import SWASchedule

__all__ = ["CyclicalCosine", "LinearRamp", "SWASchedule"]
