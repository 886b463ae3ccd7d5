"""Integrator of the samplers with momentum.

A step has two halves: `kick` changes the momentum, `velocity` moves the
weight. Both discretise, with `G` the gradient of the energy, `m` the mass and
`q = p^2 / (m c)^2 + 1` (`q = 1` for Gaussian momentum, `c` infinite),

    d theta = K'(p) dt,   K'(p) = p / (m sqrt q)                          (1)
    d p = -G dt - m (alpha + xi) K'(p) dt + sqrt(2 T alpha m) dW          (2)
    d xi = [m K'(p)^2 - T m K''(p)] dt = [(p^2 / m) / q - T q^(-3/2)] dt  (3)

This dynamics leaves `exp(-(U + K) / T)` invariant.
"""

from keras import ops


def relativistic_factor(momentum, mass, max_speed):
    """Returns `q`; without a speed limit it is 1."""
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
    `b(p) = friction / sqrt q(p)`. A step with the friction at its start,
    `b = b(p)`, is then corrected to the mean friction of both ends,

        p' = e^(-b h) p - (1 - e^(-b h))/b G
             + sqrt(T alpha m (1 - e^(-2 b h))/b) noise                   (4)
        p <- p' exp(h/2 (b(p) - b(p')))                                   (5)

    The bias of the samples falls with the square of h, as without a limit.
    With (4) alone it would fall with h.

    Args:
        momentum: p.
        gradient: G.
        noise: Standard normal noise.
        step: h.
        mass: m.
        max_speed: c, or `None`.
        injected: alpha, the friction that brings noise.
        friction: The whole friction, alpha + xi.
        temperature: T.

    Returns:
        The new momentum.
    """
    rate = friction / ops.sqrt(relativistic_factor(momentum, mass, max_speed))
    x = step * rate
    # Without friction, use the limit, exact to the rounding of float32.
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
