"""Some eigenvalues of a symmetric matrix that is known by its products."""

import numpy as np

# Of the Lanczos vectors that ARPACK keeps; smaller matrices are formed.
_VECTORS = 20


def eigenpairs(
    product,
    size: int,
    count: int,
    which: str,
    tolerance: float = 0.0,
    max_restarts: int = 300,
    seed: int = 0,
    negligible: float = 0.0,
):
    """Returns eigenvalues, the first one foremost, and unit eigenvectors.

    By the implicitly restarted Lanczos method of ARPACK, which keeps its
    vectors orthogonal; a matrix so small that it would need as many products
    is formed and decomposed.

    Args:
        product: Function of a float64 vector.
        size: Rows of the matrix.
        count: How many eigenvalues.
        which: `"LM"` for those of largest magnitude, `"LA"` for the largest.
        tolerance: Largest residual, relative to the magnitude of the
            eigenvalue. Defaults to `0.0`, rounding.
        max_restarts: Of the iteration, each of about as many products as
            there are vectors kept. Defaults to `300`.
        seed: Selects the first vector. Defaults to `0`.
        negligible: A matrix that multiplies the length of the first vector by
            no more than this counts as zero. Defaults to `0.0`.

    Returns:
        A vector of eigenvalues and an array `(count, size)`.
    """
    kept = max(2 * count + 1, _VECTORS)
    if size <= kept:
        columns = [product(unit) for unit in np.eye(size)]
        matrix = np.stack(columns)
        values, vectors = np.linalg.eigh((matrix + matrix.T) / 2)
    else:
        start = np.random.default_rng(seed).standard_normal((size, count))
        start, _ = np.linalg.qr(start)
        # ARPACK has no start for it.
        if np.linalg.norm(product(start[:, 0])) <= negligible:
            return np.zeros(count), start.T
        values, vectors = _by_arpack(
            product, start[:, 0], count, which, kept, tolerance, max_restarts
        )
    key = np.abs(values) if which == "LM" else values
    order = np.argsort(-key, kind="stable")[:count]
    return values[order], vectors[:, order].T


def _by_arpack(product, start, count, which, kept, tolerance, max_restarts):
    from scipy.sparse import linalg

    size = len(start)
    matrix = linalg.LinearOperator((size, size), product, dtype="float64")
    try:
        return linalg.eigsh(
            matrix,
            k=count,
            which=which,
            ncv=kept,
            tol=tolerance,
            maxiter=max_restarts,
            v0=start,
        )
    except linalg.ArpackNoConvergence as error:
        raise RuntimeError(
            "The eigenvalues did not converge to the tolerance asked for. "
            "Raise the tolerance or the number of restarts. "
            f"Received: tolerance={tolerance}, max_restarts={max_restarts}"
        ) from error
