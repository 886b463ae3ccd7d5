import inspect
import threading
import types
from concurrent.futures import ThreadPoolExecutor

import keras
import pytest

from keras_bdl._replaced_in_thread import replaced
from keras_bdl._replaced_in_thread import replacements_of


class Adder:
    def add(self, a, b=1):
        return a + b


def times_ten(original, *args, **kwargs):
    return 10 * original(*args, **kwargs)


def plus_half(original, *args, **kwargs):
    return original(*args, **kwargs) + 0.5


def in_another_thread(function, *args):
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(function, *args).result()


def test_only_this_thread_calls_the_replacement():
    adder = Adder()
    with replaced(adder, "add", times_ten):
        assert adder.add(1, b=2) == 30
        assert in_another_thread(adder.add, 1, 2) == 3
        assert Adder().add(1, 2) == 3
    assert adder.add(1, 2) == 3


def test_all_threads_call_the_replacement_where_that_is_asked_for():
    adder = Adder()
    with replaced(adder, "add", times_ten, all_threads=True):
        assert adder.add(1) == in_another_thread(adder.add, 1) == 20


def test_an_inner_block_calls_the_replacement_of_the_outer_one():
    adder = Adder()
    with replaced(adder, "add", times_ten):
        with replaced(adder, "add", plus_half):
            assert adder.add(1) == 20.5
        assert adder.add(1) == 20
    with replaced(adder, "add", plus_half), replaced(adder, "add", times_ten):
        assert adder.add(1) == 25


def test_the_object_is_as_before_after_an_error():
    adder = Adder()
    with pytest.raises(KeyError), replaced(adder, "add", times_ten):
        assert "add" in vars(adder)
        raise KeyError
    assert "add" not in vars(adder)
    assert adder.add(1) == 2


def test_an_attribute_of_the_object_itself_comes_back():
    module = types.ModuleType("module")
    module.double = original = lambda x: 2 * x
    with replaced(module, "double", plus_half):
        assert module.double(1) == 2.5
    assert module.double is original


def test_a_missing_function_is_an_error_and_leaves_nothing_behind():
    adder = Adder()
    with pytest.raises(AttributeError, match="subtract"):
        with replaced(adder, "subtract", times_ten):
            pass
    assert not vars(adder)


def test_the_last_of_several_threads_restores_the_function():
    adder = Adder()
    entered, leave = threading.Event(), threading.Event()

    def stay_inside():
        with replaced(adder, "add", plus_half):
            entered.set()
            leave.wait(60)
            return adder.add(1)

    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(stay_inside)
        try:
            assert entered.wait(60)
            with replaced(adder, "add", times_ten):
                assert adder.add(1) == 20
            assert "add" in vars(adder)
            assert adder.add(1) == 2
        finally:
            leave.set()
        assert other.result() == 2.5
    assert "add" not in vars(adder)


def test_the_signature_is_that_of_the_original():
    adder = Adder()
    signature = inspect.signature(adder.add)
    seen = []

    def look(original, *args, **kwargs):
        seen.append(inspect.signature(original))
        return original(*args, **kwargs)

    with replaced(adder, "add", times_ten), replaced(adder, "add", look):
        assert inspect.signature(adder.add) == signature
        adder.add(1)
    assert seen == [signature]


def test_replacements_are_those_that_this_thread_sees():
    adder = Adder()
    assert replacements_of(adder, "add") == []
    with replaced(adder, "add", times_ten, all_threads=True):
        with replaced(adder, "add", plus_half):
            assert replacements_of(adder, "add") == [times_ten, plus_half]
            found = in_another_thread(replacements_of, adder, "add")
            assert found == [times_ten]
    assert replacements_of(adder, "add") == []


def test_keras_does_not_track_a_replacement():
    layer = keras.layers.Dense(2, activation=keras.layers.PReLU())
    before = len(layer._layers)
    activation = layer.activation
    with replaced(layer, "activation", lambda original, z: original(z)):
        assert layer.activation is not activation
        assert len(layer._layers) == before
        # The function has no attributes of the layer that it calls.
        assert "_layers" not in vars(layer.activation)
    assert layer.activation is activation
