"""The loss around the mean of SWAG, along eigenvectors of its covariance."""

import numpy as np

import keras_bdl as bdl
from show import panels
from show.table import markdown

# The directions of the left panels, and the pairs that span the others.
RAYS, PLANES = (0, 1, 2, 4, 9), ((0, 1), (2, 3))
# How far they reach, in standard deviations of the first eigenvector.
REACH, POINTS, GRID = 5.0, 21, 13


def show(recipe, results, folder):
    """Draws the training loss on rays and planes, of the first seed.

    Returns a table of how wide SWAG and its diagonal are along the rays.

    Args:
        recipe: The `Recipe`.
        results: One `Result` a seed, by cell.
        folder: Where the figure is written.
    """
    figure, axes = panels.figure(
        [cell.where for cell in results], rows=1 + len(PLANES), width=6.0
    )
    texts = []
    lines = [("data, network", "eigenvector", "SWAG", "SWAG-Diagonal")]
    for panel, (cell, of_seeds) in zip(axes, results.items(), strict=True):
        trained = of_seeds[0].trained[0]
        posterior = trained.posterior("SWAG")
        smoke = trained.session.scale == "smoke"
        count = posterior.rank if smoke else max(RAYS) + 1
        found = bdl.diagnostics.posterior_eigenvectors(
            posterior, min(count, posterior.rank)
        )
        kept = len(found.values)
        options = _options(trained, posterior)
        reach = REACH * float(np.sqrt(found.values[0]))
        rays = [i for i in RAYS if i < kept]
        directions = found.directions(*rays)
        section = bdl.diagnostics.loss_cross_section(
            directions=directions,
            distances=np.linspace(-reach, reach, 5 if smoke else POINTS),
            **options,
        )
        posteriors = [trained.posterior(name) for name in lines[0][2:]]
        widths = [_widths(one, directions) for one in posteriors]
        for i, *of_ray in zip(rays, *widths, strict=True):
            stddevs = [f"{width:.2g}" for width in of_ray]
            lines.append((cell.where, f"{i + 1}", *stddevs))
        bdl.plots.loss_cross_section(
            section, names=[f"eigenvector {i + 1}" for i in rays], ax=panel[0]
        )
        texts.append(f"{cell.where}\n\n{section}")
        for ax, pair in zip(panel[1:], PLANES, strict=True):
            if max(pair) >= kept:
                ax.remove()
                continue
            plane = bdl.diagnostics.loss_plane(
                directions=found.directions(*pair),
                distances=np.linspace(-reach, reach, 3 if smoke else GRID),
                **options,
            )
            names = [f"eigenvector {i + 1}" for i in pair]
            bdl.plots.loss_plane(plane, names=names, ax=ax)
    panels.heading(figure, recipe)
    path = folder / "surface.png"
    figure.savefig(path, dpi=150)
    (folder / "surface.txt").write_text("\n\n".join(texts) + "\n")
    return (
        f"Standard deviations along eigenvectors\n\n{markdown(lines)}\n\n"
        f"Rays and planes: {path.name}; numbers: surface.txt"
    )


def _widths(posterior, directions):
    """Standard deviations of a posterior along each of these."""
    covariance = bdl.diagnostics.projected_covariance(posterior, directions)
    return np.sqrt(np.diag(covariance))


def _options(trained, posterior):
    data = trained.data.statistics
    settings = trained.settings
    return {
        "model": trained.model,
        "data": data,
        "center": posterior,
        "loss": trained.loss(),
        "weight_decay": settings.get("l2") or settings.get("weight_decay", 0.0),
        "batch_norm_data": data[0] if isinstance(data, tuple) else data,
        "batch_size": settings["batch_size"],
        "verbose": 0,
    }
