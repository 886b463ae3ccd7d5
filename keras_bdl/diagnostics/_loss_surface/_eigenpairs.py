"""Eigenvalues of a symmetric matrix from products with vectors."""

from collections.abc import Callable

import numpy as np

# Fewest Lanczos vectors that ARPACK keeps. Smaller matrices are computed.
_VECTORS = 20


def eigenpairs(
    product: Callable[[np.ndarray], np.ndarray],
    *,
    size: int,
    count: int,
    which: str,
    tolerance: float = 0.0,
    max_restarts: int = 300,
    seed: int = 0,
    negligible: float = 0.0,
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the largest eigenvalues in order and their unit eigenvectors.

    The method is the implicitly restarted Lanczos method of ARPACK, which keeps
    its vectors orthogonal. For a matrix with few rows, ARPACK would save no
    products, because it needs at least one for each row. The function then
    computes the whole matrix and its eigenvectors.

    Args:
        product: Function that multiplies a float64 vector by the matrix.
        size: Number of rows of the matrix.
        count: Number of eigenvalues.
        which: `"LM"` for the eigenvalues of largest magnitude, `"LA"` for the
            largest ones.
        tolerance: Largest residual, relative to the magnitude of the
            eigenvalue. Defaults to `0.0`, machine precision.
        max_restarts: Largest number of restarts. The number of products in a
            restart is about the number of vectors that ARPACK keeps. Defaults
            to `300`.
        seed: Seed of the first vector. Defaults to `0`.
        negligible: Used only with ARPACK, which cannot start with a zero
            matrix. If the product of the matrix and the first vector, a unit
            vector, is not longer than this, the function returns zeros as
            eigenvalues. Defaults to `0.0`.

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
        # ARPACK cannot start with a zero matrix.
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
            "The eigenvalues did not converge to `tolerance`. Raise "
            "`tolerance` or `max_restarts`. "
            f"Received: tolerance={tolerance}, max_restarts={max_restarts}"
        ) from error
