from keras_bdl.schedules.swa_schedule import SWASchedule

__all__ = [
    "SWASchedule",
]
