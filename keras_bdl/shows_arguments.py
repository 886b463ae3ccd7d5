"""Objects that print as the call that makes them."""

import inspect


class ShowsArguments:
    """Gives a class a `repr` with the arguments of its constructor.

    An argument is shown by the attribute of its name, such as
    `Normal(stddev=0.1, mean=0.0, dataset_size=None)`.
    """

    def __repr__(self):
        parameters = inspect.signature(type(self)).parameters
        shown = [
            f"{name}={getattr(self, name)!r}"
            for name in parameters
            if hasattr(self, name)
        ]
        return f"{type(self).__name__}({', '.join(shown)})"
