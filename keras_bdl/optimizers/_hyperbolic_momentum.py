"""Momentum with a speed limit (hyperbolic), or without one (Gaussian).

A step changes first the momentum, by `kick`, then the weight, by `velocity`,
and last the thermostat, by `thermostat_force`. The step discretises the
equations below, with `G` the gradient of the energy U, K the kinetic energy,
`m` the mass, `c` the speed limit, `alpha` the friction that comes with noise,
`xi` the thermostat and `q = p^2 / (m c)^2 + 1`. For Gaussian momentum, `c` is
infinite and `q = 1`.

    d theta = K'(p) dt,   K'(p) = p / (m sqrt q)                          (1)
    d p = -G dt - m (alpha + xi) K'(p) dt + sqrt(2 T alpha m) dW          (2)
    d xi = [m K'(p)^2 - T m K''(p)] dt = [(p^2 / m) / q - T q^(-3/2)] dt  (3)

These equations leave `exp(-(U + K) / T)` invariant.
"""

from keras import ops


def relativistic_factor(momentum, mass, max_speed):
    """Returns `q = p^2 / (m c)^2 + 1`, or 1 without a speed limit."""
    if max_speed is None:
        return 1.0
    return ops.square(momentum / (mass * max_speed)) + 1.0


def kick(
    momentum, gradient, noise, *, step, mass, max_speed, injected, friction,
    temperature,
):  # fmt: skip
    """Solves (2) over one step with the gradient held constant.

    Without a speed limit, the result is the exact Ornstein-Uhlenbeck process.
    With a speed limit, friction depends on the momentum,
    `b(p) = friction / sqrt q(p)`. First, (4) takes a step with the friction at
    the start, `b = b(p)`. Then (5) replaces this friction by the mean of the
    frictions at the start and at the end,

        p' = e^(-b h) p - (1 - e^(-b h))/b G
             + sqrt(T alpha m (1 - e^(-2 b h))/b) noise                   (4)
        p <- p' exp(h/2 (b(p) - b(p')))                                   (5)

    The bias of the samples is then proportional to the square of h, as without
    a speed limit. With (4) alone, the bias would be proportional to h.

    Args:
        momentum: p.
        gradient: G.
        noise: Standard normal noise.
        step: h.
        mass: m.
        max_speed: c, or `None`.
        injected: alpha, the friction that comes with noise.
        friction: The whole friction, alpha + xi.
        temperature: T.

    Returns:
        The new momentum.
    """
    rate = friction / ops.sqrt(relativistic_factor(momentum, mass, max_speed))
    x = step * rate
    # Without friction, 1e-6 gives the limit, up to the rounding of float32.
    x = ops.where(ops.abs(x) < 1e-6, 1e-6, x)
    lost = -ops.expm1(-x)  # 1 - e^(-b h)
    average = step * lost / x  # (1 - e^(-b h)) / b
    # (1 - e^(-2 b h)) / b is (2 - lost) times `average`.
    variance = temperature * injected * mass * average * (2.0 - lost)
    moved = (  # (4)
        (1.0 - lost) * momentum
        - average * gradient
        + ops.sqrt(variance) * noise
    )
    if max_speed is None:
        return moved
    q = relativistic_factor(moved, mass, max_speed)
    return moved * ops.exp(step / 2 * (rate - friction / ops.sqrt(q)))  # (5)


def velocity(momentum, mass: float, max_speed: float | None):
    """Returns `K'(p)`, the velocity of a weight, as in (1)."""
    q = relativistic_factor(momentum, mass, max_speed)
    return momentum / (mass * ops.sqrt(q))


def thermostat_force(
    momentum, mass: float, max_speed: float | None, temperature
):
    """Returns the right side of (3)."""
    q = relativistic_factor(momentum, mass, max_speed)
    kinetic = ops.square(momentum) / (mass * q)
    return kinetic - temperature / (q * ops.sqrt(q))
