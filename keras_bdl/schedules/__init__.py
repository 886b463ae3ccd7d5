from keras_bdl.schedules.cyclical_cosine import CyclicalCosine
from keras_bdl.schedules.swa_schedule import SWASchedule

__all__ = ["CyclicalCosine", "SWASchedule"]
