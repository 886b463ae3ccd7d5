"""Looking into the calls of layers, for as long as someone does."""

import contextlib
import inspect
import threading

_LOCK = threading.RLock()
_USERS = {}
_KEPT = {}
_HOOKED = ("call", "activation")
_THREAD = threading.local()


@contextlib.contextmanager
def hooked(layers, capture):
    """Reports the calls of layers to a capture, in this thread.

    Other threads, such as those of other replicas, may call the same layers
    meanwhile, captured or not. The layers are as before once nobody looks.

    Args:
        layers: Keras layers.
        capture: Its `run_layer` and `run_activation` are called in the place
            of the layer's own `call` and `activation`.
    """
    with _LOCK:
        for layer in layers:
            if _USERS.setdefault(id(layer), 0) == 0:
                _install(layer)
            _USERS[id(layer)] += 1
    outer = getattr(_THREAD, "capture", None)
    _THREAD.capture = capture
    try:
        yield
    finally:
        _THREAD.capture = outer
        with _LOCK:
            for layer in layers:
                _USERS[id(layer)] -= 1
                if _USERS[id(layer)] == 0:
                    _remove(layer)
                    del _USERS[id(layer)]


# Into `__dict__`, past the tracking of Keras: an activation may be a layer.
def _install(layer):
    kept = {k: layer.__dict__[k] for k in _HOOKED if k in layer.__dict__}
    _KEPT[id(layer)] = kept
    call = layer.call
    name = next(iter(inspect.signature(call).parameters))

    def watched_call(*args, **kwargs):
        capture = getattr(_THREAD, "capture", None)
        if capture is None:
            return call(*args, **kwargs)
        if not args:
            args = (kwargs.pop(name),)
        return capture.run_layer(layer, call, *args, **kwargs)

    layer.__dict__["call"] = watched_call
    activation = getattr(layer, "activation", None)
    if activation is None:
        return

    def watched_activation(z):
        capture = getattr(_THREAD, "capture", None)
        if capture is None:
            return activation(z)
        return activation(capture.run_activation(layer, z))

    layer.__dict__["activation"] = watched_activation


def _remove(layer):
    for name in _HOOKED:
        layer.__dict__.pop(name, None)
    layer.__dict__.update(_KEPT.pop(id(layer)))
