"""Which priors a training step was traced with."""


class PriorVersions:
    """Remembers the `prior_version` of layers when functions were made.

    A trace has the kind of each prior built in. Where models share layers,
    priors may change while another model is trained.
    """

    def __init__(self):
        self._versions = {}

    def differ(self, model, function: str) -> bool:
        """Returns whether priors are of other kinds than at the last call.

        Args:
            model: The model.
            function: Name of the function that is to be made.
        """
        # 0 for layers that are not built yet.
        version = sum(
            getattr(layer, "prior_version", 0)
            for layer in model._flatten_layers()
        )
        before = self._versions.get(function, version)
        self._versions[function] = version
        return before != version
