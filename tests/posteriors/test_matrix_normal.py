import numpy as np
import pytest

from keras_bdl.posteriors import MatrixNormal
from keras_bdl.posteriors._gaussian import KroneckerBlock

IN, OUT = 3, 4
EXAMPLES = 25
N = 20_000


def factor(size, seed):
    """A positive definite matrix, its eigenvalues and eigenvectors."""
    root = np.random.default_rng(seed).standard_normal((size, size))
    matrix = root @ root.T / size + 0.2 * np.eye(size)
    return matrix, *np.linalg.eigh(matrix)


def covariance(rows, prior=0.0, **kwargs):
    _, a, inputs = factor(rows, seed=1)
    _, s, outputs = factor(OUT, seed=2)
    variance = 1.0 / (EXAMPLES * np.outer(a, s) + prior)
    kwargs = {"kernel": 0, "bias": None, **kwargs}
    return KroneckerBlock(
        inputs=inputs, outputs=outputs, values=variance, **kwargs
    )


def draws(posterior):
    """Draws of the matrix, the bias its last row, flattened row by row."""
    found = [posterior.sample(seed) for seed in range(N)]
    mean = posterior.mean()
    return np.stack(
        [
            np.concatenate(
                [(w - m).ravel() for w, m in zip(draw, mean, strict=True)]
            )
            for draw in found
        ]
    )


def assert_covariance(draws, expected):
    variances = np.diag(expected)
    error = np.sqrt((np.outer(variances, variances) + expected**2) / len(draws))
    assert (np.abs(draws.mean(0)) < 5 * np.sqrt(variances / len(draws))).all()
    assert (np.abs(np.cov(draws.T) - expected) < 5 * error).all()


def test_draws_of_a_kernel_have_the_kronecker_product_for_covariance():
    mean = [np.random.default_rng(0).standard_normal((IN, OUT))]
    posterior = MatrixNormal(mean, [covariance(IN)])
    a, s = factor(IN, seed=1)[0], factor(OUT, seed=2)[0]
    expected = np.kron(np.linalg.inv(a), np.linalg.inv(s)) / EXAMPLES
    assert_covariance(draws(posterior), expected)


def test_a_bias_is_the_last_row_and_the_prior_adds_to_the_product():
    prior = 10.0
    posterior = MatrixNormal(
        [np.ones((IN, OUT)), np.ones(OUT)],
        [covariance(IN + 1, prior, bias=1)],
        scale=0.5,
    )
    a, s = factor(IN + 1, seed=1)[0], factor(OUT, seed=2)[0]
    precision = EXAMPLES * np.kron(a, s) + prior * np.eye((IN + 1) * OUT)
    assert_covariance(draws(posterior), 0.5 * np.linalg.inv(precision))


def test_a_kernel_of_any_rank_is_the_matrix_over_its_last_axes():
    mean = [np.zeros((5,)), np.zeros((2, 2)), np.zeros((3, 1, 2, 2))]
    matrix = covariance(IN + 1, kernel=2, bias=1)
    of_axes = MatrixNormal(mean, [matrix]).sample(3)
    flat = [m.reshape(-1, OUT) if m.ndim > 2 else m.ravel() for m in mean]
    of_matrix = MatrixNormal(flat, [matrix]).sample(3)
    for w, expected in zip(of_axes, of_matrix, strict=True):
        np.testing.assert_array_equal(w.ravel(), expected.ravel())
    assert not of_axes[0].any()


def mixed():
    """A posterior of a free variable, a bias and the kernel after it."""
    return MatrixNormal(
        [np.zeros(100_000, "float32"), np.ones(OUT), np.ones((IN, OUT))],
        [covariance(IN + 1, kernel=2, bias=1)],
        variance=[np.full(100_000, 4.0, "float32"), None, None],
        names=["gamma", "bias", "kernel"],
        trained_under_draws=True,
    )


def test_variables_in_no_matrix_have_their_own_variance_and_dtype():
    draw = mixed().sample(0)
    assert [w.dtype for w in draw] == ["float32", "float64", "float64"]
    assert abs(draw[0].var() - 4.0) < 5 * 4.0 * np.sqrt(2 / draw[0].size)
    independent = draw[0][:IN] / draw[2][:, 0]
    assert len(set(independent)) == IN


def test_eigenvectors_may_come_in_single_precision():
    mean = np.zeros((IN, OUT))
    matrix = covariance(IN)
    inputs, outputs = map(np.float32, (matrix.inputs, matrix.outputs))
    single = KroneckerBlock(0, None, inputs, outputs, matrix.values)
    np.testing.assert_allclose(
        MatrixNormal([mean], [single]).sample(1)[0],
        MatrixNormal([mean], [matrix]).sample(1)[0],
        atol=1e-6,
    )


def test_without_variance_in_a_matrix_every_draw_is_the_mean():
    matrix = covariance(IN)
    still = KroneckerBlock(
        0, None, matrix.inputs, matrix.outputs, 0 * matrix.values
    )
    assert MatrixNormal([np.ones((IN, OUT))], [still]).is_point
    moving = MatrixNormal([np.ones((IN, OUT))], [matrix])
    assert not moving.is_point
    point = moving.with_scale(0.0)
    assert point.is_point
    np.testing.assert_array_equal(point.sample(0)[0], point.mean()[0])


def test_a_matrix_cannot_be_changed():
    with pytest.raises(ValueError, match="read-only"):
        covariance(IN).values[:] = 0.0


@pytest.mark.parametrize(
    ("fields", "match"),
    [
        ({"inputs": 1.01 * np.eye(IN)}, "`inputs` must be orthogonal"),
        ({"outputs": np.ones((OUT, OUT))}, "`outputs` must be orthogonal"),
        ({"inputs": np.eye(IN)[:2]}, r"`inputs` must be a square.*\(2, 3\)"),
        ({"inputs": np.full((IN, IN), np.nan)}, "`inputs` must be finite"),
        ({"values": np.ones((OUT, IN))}, r"`values` must.*\(3, 4\).*"),
        ({"values": -np.ones((IN, OUT))}, "not be negative.*-1.0"),
    ],
)
def test_a_wrong_matrix_is_refused(fields, match):
    right = covariance(IN)
    fields = {
        "inputs": right.inputs,
        "outputs": right.outputs,
        "values": right.values,
        **fields,
    }
    with pytest.raises(ValueError, match=match):
        KroneckerBlock(kernel=0, bias=None, **fields)


KERNEL, BIAS = np.zeros((IN, OUT)), np.zeros(OUT)


@pytest.mark.parametrize(
    ("mean", "matrices", "variance", "match"),
    [
        ([KERNEL], [BIAS], None, r"Received: matrices\[0\] of type ndarray"),
        ([KERNEL], covariance(IN), None, "`matrices` must be a list"),
        ([KERNEL], [covariance(IN, kernel=1)], None, "which has 1 entries"),
        ([KERNEL], [covariance(IN, kernel=-1)], None, "which has 1 entries"),
        ([KERNEL.T], [covariance(IN)], None, r"must fit.*\(4, 3\)"),
        ([np.zeros((2, 6))], [covariance(IN)], None, "must fit.*3 rows and 4"),
        ([KERNEL, BIAS], [covariance(IN, bias=1)], None, "must fit.*2 rows"),
        (
            [KERNEL, BIAS[1:]],
            [covariance(IN + 1, bias=1)],
            None,
            r"must fit.*a bias of shape \(3,\)",
        ),
        (
            [KERNEL],
            [covariance(IN)] * 2,
            None,
            r"not share a variable.*matrices\[1\]",
        ),
        ([KERNEL], [covariance(IN)], [KERNEL], r"variance\[0\] and matrices"),
    ],
)
def test_matrices_that_do_not_fit_are_refused(mean, matrices, variance, match):
    with pytest.raises(ValueError, match=match):
        MatrixNormal(mean, matrices, variance=variance)
