"""The samplers with momentum: ATMC, SGNHT and SGHMC.

`ATMC` has the equations (1) to (5). A step changes first the momentum p by
`kick`, then the weight by `velocity`, then the thermostat xi by
`thermostat_force`. Without a speed limit, c is infinite and `q = 1`.
"""

import math
from typing import Any
from typing import Literal
from typing import Unpack

import keras
from keras import ops

from keras_bdl import _keras
from keras_bdl._aliases import FloatOrSchedule
from keras_bdl._arguments import check_number
from keras_bdl._backend import call_shared
from keras_bdl._random._noise import normal_numbers
from keras_bdl.optimizers._layer_masses import LayerMasses
from keras_bdl.optimizers._sampler import Sampler
from keras_bdl.optimizers._sampler import SamplerOptions

# average_speed = AVERAGE_SPEED / sqrt(N); max_speed = MAX_SPEED * average_speed
AVERAGE_SPEED, MAX_SPEED = 0.15, 10 / 3


def relativistic_factor(momentum: Any, mass: Any, max_speed: Any) -> Any:
    """Returns `q = p^2 / (m c)^2 + 1`, or 1 without a speed limit."""
    if max_speed is None:
        return 1.0
    return ops.square(momentum / (mass * max_speed)) + 1.0


def kick(
    momentum: Any,
    gradient: Any,
    noise: Any,
    *,
    step: Any,
    mass: Any,
    max_speed: Any,
    injected: Any,
    friction: Any,
    temperature: Any,
) -> Any:
    """Solves (2) over one step h with the gradient held constant.

    Without a speed limit, the result is the exact Ornstein-Uhlenbeck process.
    With one, friction depends on the momentum, `b(p) = friction / sqrt q(p)`.
    First, (6) takes a step with the friction at the start, `b = b(p)`. Then (7)
    replaces this friction by the mean of those at the start and at the end, so
    that the bias of the samples is proportional to the square of h, not to h,

        p' = e^(-b h) p - (1 - e^(-b h))/b G
             + sqrt(T alpha m (1 - e^(-2 b h))/b) noise                   (6)
        p <- p' exp(h/2 (b(p) - b(p')))                                   (7)

    with `injected` alpha, and `friction` the whole friction, alpha + xi.
    """
    rate = friction / ops.sqrt(relativistic_factor(momentum, mass, max_speed))
    x = step * rate
    # Without friction, 1e-6 gives the limit, up to the rounding of float32.
    x = ops.where(ops.abs(x) < 1e-6, 1e-6, x)
    lost = -ops.expm1(-x)  # 1 - e^(-b h)
    average = step * lost / x  # (1 - e^(-b h)) / b
    # (1 - e^(-2 b h)) / b is (2 - lost) times `average`.
    variance = temperature * injected * mass * average * (2.0 - lost)
    moved = (  # (6)
        (1.0 - lost) * momentum
        - average * gradient
        + ops.sqrt(variance) * noise
    )
    if max_speed is None:
        return moved
    q = relativistic_factor(moved, mass, max_speed)
    return moved * ops.exp(step / 2 * (rate - friction / ops.sqrt(q)))  # (7)


def velocity(momentum: Any, mass: Any, max_speed: Any) -> Any:
    """Returns `K'(p)`, the velocity of a weight, as in (1)."""
    q = relativistic_factor(momentum, mass, max_speed)
    return momentum / (mass * ops.sqrt(q))


def thermostat_force(
    momentum: Any, mass: Any, max_speed: Any, temperature: Any
) -> Any:
    """Returns the right side of (3)."""
    q = relativistic_factor(momentum, mass, max_speed)
    kinetic = ops.square(momentum) / (mass * q)
    return kinetic - temperature / (q * ops.sqrt(q))


class MomentumSampler(Sampler):
    """Base of ATMC, SGNHT and SGHMC, with the step of (1) to (5)."""

    uses_thermostat = True
    _masses: LayerMasses | None = None

    def __init__(
        self,
        learning_rate: FloatOrSchedule = 1e-3,
        dataset_size: int | None = None,
        *,
        average_speed: float | None = None,
        max_speed: float | Literal["auto"] | None = "auto",
        friction: float = 0.9,
        initial_learning_rate: float | None = None,
        precondition_every: int | None = None,
        precondition_end_step: int | None = None,
        **options: Unpack[SamplerOptions],
    ):
        super().__init__(learning_rate, dataset_size, **options)
        if initial_learning_rate is None:
            initial_learning_rate = _initial_value(learning_rate)
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

    def build(self, variables: list) -> None:
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

    def apply(self, grads: Any, trainable_variables: Any = None) -> None:
        """Moves every variable, then updates the masses."""
        super().apply(grads, trainable_variables)
        if self._masses is not None:
            self._masses.update()

    def update_step(
        self, gradient: Any, variable: Any, learning_rate: Any
    ) -> None:
        """Moves one variable by one step."""
        index = _keras.variable_index(self, variable)
        gradient = self.energy_gradient(gradient, variable)
        mass_factor = thermostat = None
        if self._masses is not None:
            self._masses.observe(index, gradient)
            mass_factor = self._masses.factor(index)
        if self.uses_thermostat:
            thermostat = ops.cast(self._thermostats[index], "float32")
        momentum, move, thermostat = call_shared(
            self._new_state,
            self._momentum(index),
            thermostat,
            gradient,
            self.random_bits(variable),
            learning_rate,
            mass_factor,
            compiled=True,
        )
        self.assign(self._momenta[index], momentum)
        self.assign_add(variable, move)
        if thermostat is not None:
            self.assign(self._thermostats[index], thermostat)

    def _new_state(
        self,
        momentum: Any,
        thermostat: Any,
        gradient: Any,
        bits: Any,
        learning_rate: Any,
        mass_factor: Any,
    ) -> Any:
        """Returns the new momentum, the move of a variable, the thermostat."""
        mass, limit = self._mass_and_limit(mass_factor)
        step = ops.cast(learning_rate, "float32")
        temperature = self.temperature_now()
        xi = 0.0 if thermostat is None else thermostat
        alpha = self.injected_friction(xi)
        momentum = kick(
            momentum,
            gradient,
            normal_numbers(bits),
            step=step,
            mass=mass,
            max_speed=limit,
            injected=alpha,
            friction=alpha + xi,
            temperature=temperature,
        )
        move = step * velocity(momentum, mass, limit)
        if thermostat is not None:
            force = thermostat_force(momentum, mass, limit, temperature)
            thermostat = thermostat + step * force
        return momentum, move, thermostat

    def injected_friction(self, thermostat: Any) -> Any:
        """Returns alpha, the friction that comes with noise: `alpha = D`."""
        del thermostat
        return self._friction_rate

    @property
    def _friction_rate(self) -> Any:
        return -math.log(self.friction) / self.initial_learning_rate  # (5)

    def _mass_and_limit(self, mass_factor: Any) -> Any:
        """Returns m and c of (5), with the mass factor of a variable."""
        speed = self._speed()
        mass = (self.initial_learning_rate / speed) ** 2
        if mass_factor is not None:
            mass = mass * mass_factor
        if self.max_speed is None:
            return mass, None
        fastest = self.max_speed
        if fastest == "auto":
            fastest = MAX_SPEED * speed
        limit = fastest / self.initial_learning_rate
        if mass_factor is not None:
            limit = limit / ops.sqrt(mass_factor)
        return mass, limit

    def _speed(self) -> Any:
        """Returns the average speed, a tensor if it depends on N."""
        if self.average_speed is not None:
            return self.average_speed
        return AVERAGE_SPEED / ops.sqrt(self.dataset_size.value())

    def _momentum(self, index: Any) -> Any:
        """Returns a momentum, rescaled if the mass has changed."""
        momentum = ops.cast(self._momenta[index], "float32")
        if self._masses is not None:
            momentum = momentum * ops.sqrt(self._masses.growth(index))
        return momentum

    def mass_and_limit(self, index: int) -> tuple:
        """Returns the current mass and speed limit of a variable."""
        masses = self._masses
        return self._mass_and_limit(
            None if masses is None else masses.factor(index)
        )

    def kinetic_temperatures(self) -> Any:
        """Returns the mean of `p K'(p)` for each variable; T on average."""
        means = []
        for index in range(len(self._momenta)):
            p = self._momentum(index)
            means.append(ops.mean(p * velocity(p, *self.mass_and_limit(index))))
        return ops.stack(means)

    @property
    def rest_energy(self) -> float | None:
        """`m c^2`, equal for all variables; `None` without a speed limit."""
        if self.max_speed is None:
            return None
        if self.max_speed == "auto":
            return MAX_SPEED**2
        return float((self.max_speed / self._speed()) ** 2)

    def get_config(self) -> dict:
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


def _initial_value(learning_rate: Any) -> Any:
    if isinstance(
        learning_rate, keras.optimizers.schedules.LearningRateSchedule
    ):
        return float(learning_rate(0))
    return float(learning_rate() if callable(learning_rate) else learning_rate)


@keras.saving.register_keras_serializable(package="keras_bdl")
class ATMC(MomentumSampler):
    """Adaptive thermostat Monte Carlo: draws posterior samples.

    ATMC is the sampler to start with: a speed limit keeps large networks
    stable, and a thermostat removes the noise of the minibatch gradients.

    Every weight w has a momentum p and a thermostat xi, which measures the
    gradient noise in units of friction. With `G` the gradient of
    `U = N loss - log prior`, `m` the mass, c the speed limit and
    `q = p^2 / (m c)^2 + 1`,

        d w = K'(p) dt,   K'(p) = p / (m sqrt q)                          (1)
        d p = -G dt - m (alpha + xi) K'(p) dt + sqrt(2 T alpha m) dW      (2)
        d xi = [(p^2 / m) / q - T q^(-3/2)] dt                            (3)

    ATMC adds, together with noise, only the part alpha of the friction D that
    the thermostat does not already provide,

        alpha = max(D - xi, 0)                                            (4)

    With h0 the initial learning rate, which a schedule does not change,

        m = (average_speed / h0)^-2,  c = max_speed / h0,
        D = -log(friction) / h0                                           (5)

    (1) to (3) leave `exp(-(U + K) / T)` invariant, with K the kinetic energy.
    The paper prints, in place of (3), the thermostat of Gaussian momentum,
    which makes samples too narrow.

    The loss must be the mean negative log-likelihood; the target is
    `exp(-U/T)`. At `T = 1` the target is the posterior.

    The noise is a function of (seed, variable, iteration). All replicas use the
    same noise, and a chain resumed from a file or a checkpoint continues
    exactly if its data do: see `keras_bdl.datasets.EpochCounter`. Several
    chains need seeds of their own: call `keras.utils.set_random_seed` with
    another number before you make the model and the optimizer of each.

    Shuffle anew in every epoch. After `set_random_seed`, Keras shuffles arrays
    the same way in every epoch; `EpochCounter().batches` does not. Minibatches
    without replacement have noise that cancels over an epoch, but the
    thermostat assumes white noise: samples are too narrow if its memory,
    `-log(friction) / (T h0^2)` steps, is about one epoch or shorter.

    Args:
        learning_rate: Float or schedule, the step size h. Defaults to `1e-3`.
        dataset_size: N, the number of training examples. Defaults to `None`:
            `keras_bdl.Model.fit` counts them.
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
        **options: `temperature`, `prior`, `seed` and others that all samplers
            share: see `keras_bdl.extend.SamplerOptions`.

    Example:

    ```python
    model.compile(keras_bdl.ATMC(learning_rate=1e-3), loss=loss)
    samples = keras_bdl.callbacks.SampleCollector(every=1)
    model.fit(train, epochs=3, verbose=0, callbacks=[samples])
    prediction = keras_bdl.predict(model, x_test, samples.posterior, verbose=0)
    ```

    Reference:
        - Heek and Kalchbrenner, [Bayesian Inference for Large Scale Image
          Classification](https://arxiv.org/abs/1908.03491), algorithm 1
    """

    def injected_friction(self, thermostat: Any) -> Any:
        """Returns alpha, (4)."""
        return ops.maximum(self._friction_rate - thermostat, 0.0)  # (4)


@keras.saving.register_keras_serializable(package="keras_bdl")
class SGNHT(MomentumSampler):
    """Stochastic gradient Nose-Hoover thermostat: draws posterior samples.

    Use SGNHT if the noise of the minibatch gradients is large and friction
    should always be present. `keras_bdl.ATMC` adds less friction, and has the
    equations and what holds for both. In SGNHT, the friction that comes with
    noise is the constant D that the argument `friction` sets,

        alpha = D                                                         (1)

    Args:
        **options: Those of `keras_bdl.ATMC`, and those of
            `keras_bdl.extend.SamplerOptions`.

    Example:

    ```python
    model.compile(keras_bdl.SGNHT(learning_rate=1e-3), loss=loss)
    model.fit(train, epochs=2, verbose=0)
    ```

    Reference:
        - [Ding et al., 2014](https://papers.nips.cc/paper/5592), with one
          thermostat per weight
    """


@keras.saving.register_keras_serializable(package="keras_bdl")
class SGHMC(MomentumSampler):
    """Stochastic gradient Hamiltonian Monte Carlo: draws posterior samples.

    Use SGHMC if the noise of the minibatch gradients is small. SGHMC does not
    remove this noise, so the samples are too wide, and a larger step makes
    them wider still. `keras_bdl.SGNHT` and `keras_bdl.ATMC` remove the noise;
    `ATMC` has the equations and what holds for all three. In SGHMC, the
    friction that comes with noise is the constant D that the argument
    `friction` sets, and the thermostat is off,

        alpha = D,  xi = 0                                                (1)

    Args:
        **options: Those of `keras_bdl.ATMC`, and those of
            `keras_bdl.extend.SamplerOptions`.

    Example:

    ```python
    model.compile(keras_bdl.SGHMC(learning_rate=1e-3), loss=loss)
    model.fit(train, epochs=2, verbose=0)
    ```

    Reference:
        - [Chen et al., 2014](https://arxiv.org/abs/1402.4102), eq. 9, with
          no estimate of the gradient noise
    """

    uses_thermostat = False
