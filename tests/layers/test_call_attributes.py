import threading
from concurrent.futures import ThreadPoolExecutor

from keras_bdl.layers import MeanFieldDense
from keras_bdl.layers._variational import replaced


def test_each_thread_sees_its_own_value():
    layer = MeanFieldDense(1, activation="relu")
    both_inside = threading.Barrier(2, timeout=10)

    def read(value):
        with replaced(layer, {"activation": value}):
            both_inside.wait()
            found = layer.activation
            both_inside.wait()
        return found, layer.activation.__name__

    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(read, ("first", "second")))
    assert found == [("first", "relu"), ("second", "relu")]
    assert layer.activation.__name__ == "relu"
