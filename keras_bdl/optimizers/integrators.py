"""The two halves of a step of every sampler with momentum.

They discretise, with `G` the gradient of the energy, `m` the mass and
`q = p^2 / (m c)^2 + 1` (`q = 1` for Gaussian momentum, `c` infinite),

    d theta = K'(p) dt,   K'(p) = p / (m sqrt q)                          (1)
    d p = -G dt - m (alpha + xi) K'(p) dt + sqrt(2 T alpha m) dW          (2)
    d xi = [m K'(p)^2 - T m K''(p)] dt = [(p^2 / m) / q - T q^(-3/2)] dt  (3)

which leaves `exp(-(U + K) / T)` invariant.
"""

from keras import ops


def relativistic_factor(momentum, mass: float, max_speed: float | None):
    """Returns `q`, which is 1 where there is no speed limit."""
    if max_speed is None:
        return ops.ones_like(momentum)
    return ops.square(momentum / (mass * max_speed)) + 1.0


def decay_average(rate, step):
    """Returns `(1 - exp(-rate step)) / rate`, finite at `rate = 0`."""
    x = rate * step
    small = ops.abs(x) < 1e-3
    series = 1.0 - x / 2.0 + ops.square(x) / 6.0
    # Where the branch not taken divides by zero, nothing may become NaN.
    exact = -ops.expm1(-x) / ops.where(small, ops.ones_like(x), x)
    return step * ops.where(small, series, exact)


def kick(
    momentum, gradient, noise, *, step, mass, max_speed, injected, friction,
    temperature,
):  # fmt: skip
    """Solves (2) over one step, gradient and friction frozen.

    Without a speed limit this is the exact Ornstein-Uhlenbeck process. With
    one, friction depends on the momentum and is that of its beginning,
    `b = friction / sqrt q`,

        p <- e^(-b h) p - (1 - e^(-b h))/b G
             + sqrt(T alpha m (1 - e^(-2 b h))/b) noise                   (4)

    Args:
        momentum: p.
        gradient: G.
        noise: Standard normal noise.
        step: h.
        mass: m.
        max_speed: c, or `None`.
        injected: alpha, the friction that comes with noise.
        friction: All of it, alpha + xi.
        temperature: T.

    Returns:
        The new momentum.
    """
    q = relativistic_factor(momentum, mass, max_speed)
    rate = friction / ops.sqrt(q)
    variance = (
        temperature * injected * mass * 2.0 * decay_average(2.0 * rate, step)
    )
    return (  # (4)
        ops.exp(-rate * step) * momentum
        - decay_average(rate, step) * gradient
        + ops.sqrt(variance) * noise
    )


def velocity(momentum, mass: float, max_speed: float | None):
    """Returns `K'(p)`."""
    q = relativistic_factor(momentum, mass, max_speed)
    return momentum / (mass * ops.sqrt(q))


def thermostat_force(
    momentum, mass: float, max_speed: float | None, temperature
):
    """Returns the right side of (3)."""
    q = relativistic_factor(momentum, mass, max_speed)
    kinetic = ops.square(momentum) / (mass * q)
    return kinetic - temperature / (q * ops.sqrt(q))
