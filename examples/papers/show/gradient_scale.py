"""The noise of the gradient of one convolution."""

import radial_robustness


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
    found = radial_robustness.against_scale(run)
    figure = radial_robustness.draw_scale(run, *found)
    path = folder / "scale.png"
    figure.savefig(path, dpi=150)
    table = radial_robustness.scale_table(*found)
    return f"```\n{table}\n```\n\nFigure: {path.name}"
