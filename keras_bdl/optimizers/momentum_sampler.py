"""What the samplers with momentum have in common."""

import math

import keras
from keras import ops

from keras_bdl.optimizers.integrators import kick
from keras_bdl.optimizers.integrators import thermostat_force
from keras_bdl.optimizers.integrators import velocity
from keras_bdl.optimizers.sampler import Sampler


class MomentumSampler(Sampler):
    """Base of ATMC, SGNHT and SGHMC, see `integrators`.

    With `h0` the initial learning rate,

        m = (average_speed / h0)^-2,  c = max_speed / h0,
        D = -log(friction) / h0                                           (1)

    which a schedule of the learning rate does not move.

    Args:
        learning_rate: h, the step size; float or schedule.
        dataset_size: See `Sampler`.
        average_speed: How far a weight moves in one step of size `h0`, in
            the mean square, without a speed limit.
        max_speed: How far it moves at most, or `None`: no limit.
        friction: Share of its momentum that it keeps over such a step.
        temperature: See `Sampler`.
        prior: See `Sampler`.
        seed: See `Sampler`.
        initial_learning_rate: h0. `None` means that of `learning_rate`.
        name: Name of the optimizer.
        **kwargs: See `Sampler`.
    """

    uses_thermostat = True

    def __init__(
        self,
        learning_rate,
        dataset_size,
        average_speed,
        max_speed,
        friction,
        temperature,
        prior,
        seed,
        initial_learning_rate,
        name,
        kwargs,
    ):
        super().__init__(
            learning_rate, dataset_size, temperature, prior, seed, name, kwargs
        )
        if initial_learning_rate is None:
            initial_learning_rate = _initial_value(learning_rate)
        _check_positive("initial_learning_rate", initial_learning_rate)
        _check_positive("average_speed", average_speed)
        if max_speed is not None:
            _check_positive("max_speed", max_speed)
        if not 0 < friction < 1:
            raise ValueError(
                "`friction` must be between 0 and 1, the share of its momentum "
                f"that a weight keeps. Received: friction={friction}"
            )
        self.initial_learning_rate = initial_learning_rate
        self.average_speed = average_speed
        self.max_speed = max_speed
        self.friction = friction
        # (1)
        self._mass = (average_speed / initial_learning_rate) ** -2
        self._limit = max_speed and max_speed / initial_learning_rate
        self._friction_rate = -math.log(friction) / initial_learning_rate

    def build(self, variables):
        """Creates momentum and thermostat of every variable, all zero."""
        if self.built:
            return
        super().build(variables)
        self._momenta = self.add_optimizer_variables(variables, "momentum")
        if self.uses_thermostat:
            self._thermostats = self.add_optimizer_variables(
                variables, "thermostat"
            )

    def injected_friction(self, thermostat):
        """Returns alpha, the friction that comes with noise."""
        raise NotImplementedError

    def update_step(self, gradient, variable, learning_rate):
        """Moves one variable by one step."""
        index = self._get_variable_index(variable)
        step = ops.cast(learning_rate, "float32")
        temperature = self.temperature_now()
        thermostat = (
            ops.cast(self._thermostats[index], "float32")
            if self.uses_thermostat
            else 0.0
        )
        injected = self.injected_friction(thermostat)
        momentum = kick(
            ops.cast(self._momenta[index], "float32"),
            self.energy_gradient(gradient, variable),
            self.noise(variable),
            step=step,
            mass=self._mass,
            max_speed=self._limit,
            injected=injected,
            friction=injected + thermostat,
            temperature=temperature,
        )
        move = step * velocity(momentum, self._mass, self._limit)
        self.assign(self._momenta[index], momentum)
        self.assign_add(variable, ops.cast(move, variable.dtype))
        if self.uses_thermostat:
            force = thermostat_force(
                momentum, self._mass, self._limit, temperature
            )
            self.assign(self._thermostats[index], thermostat + step * force)

    def get_config(self):
        """Returns every constructor argument."""
        return {
            **super().get_config(),
            "average_speed": self.average_speed,
            "max_speed": self.max_speed,
            "friction": self.friction,
            # Keras's config holds the learning rate of the moment.
            "initial_learning_rate": self.initial_learning_rate,
        }


def _initial_value(learning_rate):
    if isinstance(
        learning_rate, keras.optimizers.schedules.LearningRateSchedule
    ):
        return float(learning_rate(0))
    return float(learning_rate() if callable(learning_rate) else learning_rate)


def _check_positive(name, value):
    if not value > 0:
        raise ValueError(f"`{name}` must be positive. Received: {name}={value}")
