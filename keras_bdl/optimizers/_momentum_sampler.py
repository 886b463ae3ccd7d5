"""Base class of the samplers with momentum."""

import math
from typing import Any
from typing import Literal

import keras
import tensorflow as tf
from keras import ops

from keras_bdl import _keras
from keras_bdl._arguments import check_number
from keras_bdl._backend import call_shared
from keras_bdl._random._gaussian_weights import normal_numbers
from keras_bdl.optimizers._hyperbolic_momentum import kick
from keras_bdl.optimizers._hyperbolic_momentum import thermostat_force
from keras_bdl.optimizers._hyperbolic_momentum import velocity
from keras_bdl.optimizers._layer_masses import LayerMasses
from keras_bdl.optimizers._sampler import Sampler

# The average speed is the first over sqrt(N), the speed limit the second times
# the average speed.
AVERAGE_SPEED, MAX_SPEED = 0.15, 10 / 3


class MomentumSampler(Sampler):
    """Base of ATMC, SGNHT and SGHMC.

    `hyperbolic_momentum` has the equations of a step. With `h0` the initial
    learning rate, the mass m, the speed limit c and the friction D are

        m = (average_speed / h0)^-2,  c = max_speed / h0,
        D = -log(friction) / h0                                           (1)

    A schedule of the learning rate does not change m, c and D.

    Args:
        average_speed: Root mean square distance that a weight moves in one
            step of size h0, without a speed limit. This distance sets the mass,
            `m = (average_speed / h0)^-2`. Defaults to `None`:
            `0.15 / sqrt(N)`. The gradient of U grows with N, so a fixed speed
            would take other steps with more data. For the 50,000 images of the
            paper, whose chains run longer, the default is twice its `3e-4`.
        max_speed: Largest distance that a weight moves in one step. This
            distance sets the speed limit, `c = max_speed / h0`; `None` means
            Gaussian momentum, without a limit. Defaults to `"auto"`: 10 / 3 of
            the average speed, as in the paper.
        friction: Share of its momentum that a weight keeps over one step. This
            share sets `D = -log(friction) / h0`. Defaults to `0.9`.
        initial_learning_rate: h0, which sets mass, speed limit and friction.
            All three stay the same when a schedule changes h. Defaults to
            `None`: h at the first step.
        precondition_every: Number of steps between two updates of the masses.
            Each variable then has a mass of its own, set from the mean square
            of its gradients, and moves at its own scale. Defaults to `None`:
            one mass for all variables.
        precondition_end_step: First step, counted from 0, that no longer
            changes the masses, such as the end of the burn-in. Samples are
            exact from this step on. Defaults to `None`: masses never stop
            changing.
    """

    uses_thermostat = True
    _masses = None

    def __init__(
        self,
        *args,
        average_speed: float | None = None,
        max_speed: float | Literal["auto"] | None = "auto",
        friction: float = 0.9,
        initial_learning_rate: float | None = None,
        precondition_every: int | None = None,
        precondition_end_step: int | None = None,
        **kwargs,
    ):
        super().__init__(*args, **kwargs)
        if initial_learning_rate is None:
            initial_learning_rate = _initial_value(self._given_learning_rate)
            check_number("learning_rate", initial_learning_rate, above=0.0)
        check_number("initial_learning_rate", initial_learning_rate, above=0.0)
        if average_speed is not None:
            check_number("average_speed", average_speed, above=0.0)
        if max_speed not in (None, "auto"):
            check_number("max_speed", max_speed, above=0.0)
        check_number("friction", friction, above=0.0, below=1.0)
        if precondition_end_step is not None and precondition_every is None:
            raise ValueError(
                "`precondition_end_step` needs `precondition_every`. Give "
                "both, or leave both out. "
                f"Received: precondition_end_step={precondition_end_step}"
            )
        for name, steps in (
            ("precondition_every", precondition_every),
            ("precondition_end_step", precondition_end_step),
        ):
            if steps is not None:
                check_number(name, steps, at_least=1, integer=True)
        self.initial_learning_rate = initial_learning_rate
        self.average_speed = average_speed
        self.max_speed = max_speed
        self.friction = friction
        self.precondition_every = precondition_every
        self.precondition_end_step = precondition_end_step
        self._friction_rate = -math.log(friction) / initial_learning_rate  # (1)

    @property
    def _speed(self):
        """The average speed, a tensor if it depends on N."""
        if self.average_speed is not None:
            return self.average_speed
        return AVERAGE_SPEED / ops.sqrt(self.dataset_size.value())

    @property
    def _mass(self):
        return (self.initial_learning_rate / self._speed) ** 2  # (1)

    @property
    def _limit(self):
        if self.max_speed is None:
            return None
        fastest = self.max_speed
        if fastest == "auto":
            fastest = MAX_SPEED * self._speed
        return fastest / self.initial_learning_rate  # (1)

    def build(self, variables):
        """Creates a momentum and a thermostat for every variable, all zero."""
        if self.built:
            return
        super().build(variables)
        self._momenta = self.add_optimizer_variables(variables, "momentum")
        if self.uses_thermostat:
            self._thermostats = self.add_optimizer_variables(
                variables, "thermostat"
            )
        if self.precondition_every is not None:
            self._masses = LayerMasses(
                self,
                variables,
                every=self.precondition_every,
                end_step=self.precondition_end_step,
            )

    def apply(self, grads, trainable_variables=None):
        """Moves every variable, then updates the masses."""
        super().apply(grads, trainable_variables)
        if self._masses is not None:
            self._masses.update()

    def injected_friction(self, thermostat: Any) -> float | tf.Tensor:
        """Returns alpha, the friction that comes with noise."""
        raise NotImplementedError

    def update_step(self, gradient, variable, learning_rate):
        """Moves one variable by one step."""
        index = _keras.variable_index(self, variable)
        gradient = self.energy_gradient(gradient, variable)
        if self._masses is not None:
            self._masses.observe(index, gradient)
        momentum, move, thermostat = call_shared(
            self._new_state,
            self._momentum(index),
            self._thermostat(index),
            gradient,
            self.random_bits(variable),
            learning_rate,
            self._mass_factor(index),
            compiled=True,
        )
        self.assign(self._momenta[index], momentum)
        self.assign_add(variable, move)
        if thermostat is not None:
            self.assign(self._thermostats[index], thermostat)

    def _new_state(
        self, momentum, thermostat, gradient, bits, learning_rate, mass_factor
    ):
        """Returns the new momentum, the move of a variable, the thermostat."""
        mass, limit = self._mass_and_limit(mass_factor)
        step = ops.cast(learning_rate, "float32")
        temperature = self.temperature_now()
        xi = 0.0 if thermostat is None else thermostat
        injected = self.injected_friction(xi)
        momentum = kick(
            momentum,
            gradient,
            normal_numbers(bits),
            step=step,
            mass=mass,
            max_speed=limit,
            injected=injected,
            friction=injected + xi,
            temperature=temperature,
        )
        move = step * velocity(momentum, mass, limit)
        if thermostat is not None:
            force = thermostat_force(momentum, mass, limit, temperature)
            thermostat = thermostat + step * force
        return momentum, move, thermostat

    def kinetic_temperatures(self) -> tf.Tensor:
        """Returns the mean of `p K'(p)` for each variable; T on average."""
        indices = range(len(self._momenta))
        return ops.stack(
            [
                ops.mean(p * velocity(p, *self.mass_and_limit(index)))
                for index, p in enumerate(map(self._momentum, indices))
            ]
        )

    @property
    def rest_energy(self) -> float | None:
        """`m c^2`, equal for all variables; `None` without a speed limit."""
        if self.max_speed is None:
            return None
        if self.max_speed == "auto":
            return MAX_SPEED**2
        return float((self.max_speed / self._speed) ** 2)

    def _momentum(self, index):
        """Returns a momentum, rescaled if the mass has changed."""
        momentum = ops.cast(self._momenta[index], "float32")
        if self._masses is not None:
            momentum = momentum * ops.sqrt(self._masses.growth(index))
        return momentum

    def _thermostat(self, index):
        """Returns a thermostat, or `None` if the sampler has none."""
        if not self.uses_thermostat:
            return None
        return ops.cast(self._thermostats[index], "float32")

    def mass_and_limit(self, index: int) -> tuple:
        """Returns the current mass and speed limit of a variable."""
        return self._mass_and_limit(self._mass_factor(index))

    def _mass_factor(self, index):
        return None if self._masses is None else self._masses.factor(index)

    def _mass_and_limit(self, mass_factor):
        mass, limit = self._mass, self._limit
        if mass_factor is None:
            return mass, limit
        if limit is not None:
            limit = limit / ops.sqrt(mass_factor)
        return mass * mass_factor, limit

    def get_config(self):
        """Returns every constructor argument."""
        return {
            **super().get_config(),
            "average_speed": self.average_speed,
            "max_speed": self.max_speed,
            "friction": self.friction,
            # The config of Keras holds only the current learning rate.
            "initial_learning_rate": self.initial_learning_rate,
            "precondition_every": self.precondition_every,
            "precondition_end_step": self.precondition_end_step,
        }


def _initial_value(learning_rate):
    if isinstance(
        learning_rate, keras.optimizers.schedules.LearningRateSchedule
    ):
        return float(learning_rate(0))
    return float(learning_rate() if callable(learning_rate) else learning_rate)
