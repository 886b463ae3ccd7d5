"""The noise of the gradient of one convolution."""

import radial_robustness
from files import digested
from files import kept

import keras_bdl as bdl


def show(recipe, session, seeds, folder):
    """Draws the noise against the scale of the weights; returns a table.

    Args:
        recipe: The `Recipe`, with the number of `channels`.
        session: The `Session`.
        seeds: Number of seeds, of which one is enough here.
        folder: Where the figure is written.
    """
    run = radial_robustness.Run(session.scale == "smoke", seeds)
    run.channels = recipe.arguments["channels"]
    known = [run.channels, run.draws, *session.precision]
    name = digested("gradient-scale", known)
    found = _reports(kept(session.folder / f"{name}.json", _made_by(run)))
    figure = radial_robustness.draw_scale(run, *found)
    path = folder / "scale.png"
    figure.savefig(path, dpi=150)
    table = radial_robustness.scale_table(*found)
    return f"```\n{table}\n```\n\nFigure: {path.name}"


def _made_by(run):
    """What computes the reports, as JSON has them."""

    def make():
        reports, size = radial_robustness.against_scale(run)
        listed = {
            task: {
                kind: [[s, r.to_dict()] for s, r in found.items()]
                for kind, found in of_task.items()
            }
            for task, of_task in reports.items()
        }
        return [listed, size]

    return make


def _reports(kept):
    """What `make` was given."""
    listed, size = kept
    report = bdl.diagnostics.GradientVarianceReport
    reports = {
        task: {
            kind: {s: report(**r) for s, r in found}
            for kind, found in of_task.items()
        }
        for task, of_task in listed.items()
    }
    return reports, size
