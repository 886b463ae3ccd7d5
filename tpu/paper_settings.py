"""The settings of papers, for `train.py --setting`.

The numbers are those of the recipes in `examples/papers`, at the paper's scale.
"""

import sys
from pathlib import Path

PAPERS = Path(__file__).parents[1] / "examples" / "papers"
# Recipe, and the flags that a paper leaves open.
SETTINGS = {
    "atmc-imagenet": ("atmc/table2", {"bfloat16": True}),
    "atmc-cifar10": ("atmc/table1", {}),
}
METHOD = "ATMC, posterior predictive"


def flags(name):
    """Returns the values of the flags of `train.py`, by name.

    Args:
        name: One of `SETTINGS`.
    """
    # Behind the folder of this file, which has another `compiling.py`.
    if str(PAPERS) not in sys.path:
        sys.path.append(str(PAPERS))
    import lookup
    import networks
    import published
    import recipe

    import keras_bdl as bdl

    of_recipe, open_flags = SETTINGS[name]
    (cell,) = (
        cell
        for cell in recipe.load(of_recipe, "paper").cells
        if cell.method == METHOD
    )
    settings = lookup.settings_of(cell, "ATMC", "paper")
    printed = published.settings(cell.paper, cell.data, cell.network, "ATMC")
    network = networks.NETWORKS[cell.network]
    prior = bdl.priors.Laplace(printed["scale_prior"])
    return {
        "method": "atmc",
        "data": cell.data,
        "network": network.make,
        "network_options": {
            **network.arguments,
            **settings.given("filters"),
            # `UnitDirection` is the default of the directions.
            "scale_prior": prior,
        },
        "options": {
            "average_speed": settings.average_speed,
            "max_speed": settings.max_speed,
            "friction": settings.friction,
            "temperature": settings.temperature,
            "prior": None,  # the network has its priors
        },
        "learning_rate": settings.learning_rate,
        "batch": settings.batch_size,
        "epochs": settings.epochs,
        "burn_in": settings.burn_in_epochs,
        "cycle": settings.cycle_epochs,
        "augment": settings.augmented,
        **open_flags,
    }
