import threading
from concurrent.futures import ThreadPoolExecutor

from keras_bdl.layers._call_attributes import CallState
from keras_bdl.layers._call_attributes import SeenAttribute
from keras_bdl.layers._call_attributes import seeing


class Layer:
    kernel = SeenAttribute()
    built = True

    def __init__(self):
        self._call_state = CallState()
        self.kernel = "own"


def test_each_thread_sees_its_own_value():
    layer = Layer()
    both_inside = threading.Barrier(2, timeout=10)

    def read(value):
        with seeing(layer, {"kernel": value}):
            both_inside.wait()
            found = layer.kernel
            both_inside.wait()
        return found, layer.kernel

    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(read, ("first", "second")))
    assert found == [("first", "own"), ("second", "own")]
    assert layer.kernel == "own"
