"""The noise of the gradient of one convolution, by scale of its weights."""

from files import digested
from files import kept
from radial_experiments import scale
from radial_experiments.settings import Run

import keras_bdl as bdl


def show(outcome, arguments):
    """Draws the noise against the scale of the weights; returns a table.

    The noise is measured for one seed only.

    Args:
        outcome: The `Outcome`.
        arguments: The arguments of the recipe, `arguments.GradientScale`.
    """
    session = outcome.session
    run = Run(session.scale == "smoke", session.seeds)
    run.channels = arguments.channels
    known = [run.channels, run.draws, *session.precision]
    name = digested("gradient-scale", known)
    found = _reports(kept(session.folder / f"{name}.json", _made_by(run)))
    figure = scale.draw(run, *found)
    file = outcome.save(figure, "scale")
    table = scale.table(*found)
    return f"```\n{table}\n```\n\nFigure: {file}"


def _made_by(run):
    """Returns a function that computes the reports as JSON values."""

    def make():
        reports, size = scale.measure(run)
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
    """Returns the reports and the size of JSON values."""
    listed, size = kept
    report = bdl.extend.GradientVarianceReport
    reports = {
        task: {
            kind: {s: report(**r) for s, r in found}
            for kind, found in of_task.items()
        }
        for task, of_task in listed.items()
    }
    return reports, size
