"""The loss around the mean of SWAG, along eigenvectors of its covariance."""

import functools

import numpy as np
from files import damage_is_said
from files import digested
from files import kept

import keras_bdl as bdl
from show import panels
from show.table import markdown

# Eigenvectors of the rays, and pairs of eigenvectors that span the planes.
RAYS, PLANES = (0, 1, 2, 4, 9), ((0, 1), (2, 3))
# Half the length of rays and planes, in standard deviations along the first
# eigenvector.
REACH = 5.0


def show(outcome, arguments):
    """Draws the training loss of the first seed on rays and planes.

    Returns a table of the standard deviations of SWAG and SWAG-Diagonal along
    the rays.

    Args:
        outcome: The `Outcome`.
        arguments: The arguments of the recipe, `arguments.Surface`.
    """
    results = outcome.results
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
            posterior, count=min(count, posterior.rank)
        )
        number = len(found.values)
        around = functools.partial(
            _around, trained, posterior, trained.loss(), arguments.images
        )
        reach = REACH * float(np.sqrt(found.values[0]))
        rays = [i for i in RAYS if i < number]
        directions = found.directions(*rays)
        section = around(
            bdl.diagnostics.loss_cross_section,
            bdl.extend.LossCrossSectionReport,
            directions,
            np.linspace(-reach, reach, 5 if smoke else arguments.points),
            rays,
        )
        posteriors = [trained.posterior(name) for name in lines[0][2:]]
        widths = [_widths(one, directions) for one in posteriors]
        for i, *of_ray in zip(rays, *widths, strict=True):
            stddevs = [f"{width:.2g}" for width in of_ray]
            lines.append((cell.where, f"{i + 1}", *stddevs))
        bdl.plots.loss_cross_section(
            section, labels=[f"eigenvector {i + 1}" for i in rays], ax=panel[0]
        )
        texts.append(f"{cell.where}\n\n{section}")
        for ax, pair in zip(panel[1:], PLANES, strict=True):
            if max(pair) >= number:
                ax.remove()
                continue
            plane = around(
                bdl.diagnostics.loss_plane,
                bdl.extend.LossPlaneReport,
                found.directions(*pair),
                np.linspace(-reach, reach, 3 if smoke else arguments.grid),
                pair,
            )
            names = [f"eigenvector {i + 1}" for i in pair]
            bdl.plots.loss_plane(plane, labels=names, ax=ax)
    panels.heading(figure, outcome.recipe)
    file = outcome.save(figure, "surface")
    (outcome.folder / "surface.txt").write_text("\n\n".join(texts) + "\n")
    return (
        f"Standard deviations along eigenvectors\n\n{markdown(lines)}\n\n"
        f"Rays and planes: {file}; numbers: surface.txt"
    )


def _widths(posterior, directions):
    """Returns the standard deviations of a posterior along directions."""
    covariance = bdl.diagnostics.projected_covariance(posterior, directions)
    return np.sqrt(np.diag(covariance))


def _around(
    trained,
    posterior,
    loss,
    images,
    evaluate,
    report,
    directions,
    distances,
    places,
):
    """Returns a report on the loss; evaluates the loss once."""

    def make():
        data = _first(trained, images)
        return evaluate(
            trained.model,
            data,
            directions,
            distances=distances,
            center=posterior,
            loss=loss,
            weight_decay=trained.settings.l2_or_weight_decay,
            batch_norm_data=data[0] if isinstance(data, tuple) else data,
            batch_size=trained.statistics_batch_size,
        ).to_dict()

    known = [REACH, len(distances), *places]
    if images:
        known.append(f"{images} images")
    path = trained.folder / f"{digested(report.__name__, known)}.json"
    found = kept(path, make)
    with damage_is_said(path):
        return report(**found)


def _first(trained, images):
    """Returns the first training images with their labels; 0 for all."""
    data = trained.data.statistics
    if not images:
        return data
    if isinstance(data, tuple):
        return tuple(part[:images] for part in data)
    return data.unbatch().take(images).batch(trained.settings.batch_size)
