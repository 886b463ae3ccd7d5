"""Schedules of learning rates, temperatures and KL weights.

Everything that takes a schedule of Keras takes these, too.
"""

from keras_bdl.schedules.cyclical_cosine import CyclicalCosine
from keras_bdl.schedules.linear_ramp import LinearRamp
from keras_bdl.schedules.swa_schedule import SWASchedule

__all__ = ["CyclicalCosine", "LinearRamp", "SWASchedule"]
