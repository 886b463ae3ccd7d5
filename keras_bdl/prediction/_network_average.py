"""The average of a model's outputs over posterior samples, in one graph."""

import contextlib
import dataclasses
from collections.abc import Callable
from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from keras_bdl._backend import jvp
from keras_bdl.posteriors._mc_dropout import dropout_on
from keras_bdl.prediction._averages import average_of
from keras_bdl.prediction._averages import merged
from keras_bdl.prediction._linear_pooling import linear_pooling
from keras_bdl.prediction._links import linked_values
from keras_bdl.prediction._links import output_gaussians
from keras_bdl.prediction._links import with_closed_form
from keras_bdl.prediction._options import EXACT_LINKS
from keras_bdl.prediction._options import MONTE_CARLO
from keras_bdl.prediction._options import PredictOptions
from keras_bdl.prediction._outputs import MEAN
from keras_bdl.prediction._outputs import POISSON
from keras_bdl.prediction._outputs import DescribedOutput
from keras_bdl.prediction._outputs import at_least_float32
from keras_bdl.prediction._outputs import described_outputs
from keras_bdl.prediction._outputs import masks_of
from keras_bdl.prediction._outputs import moments_of
from keras_bdl.prediction._outputs import with_masks
from keras_bdl.prediction._sample_loop import average_over_samples
from keras_bdl.prediction._stateless_call import seed_states
from keras_bdl.prediction._stateless_call import stateless_call


@dataclasses.dataclass(frozen=True)
class AverageOptions:
    """All that a graph of a prediction depends on besides the model.

    `positions` are the places in `model.variables` of what differs between
    samples. `blocks` is, with a link, the layout of the covariance,
    whose variables are `covered`; `()` means the trainable ones, as in older
    files. `noise` has the noise of each flat output, as `Likelihood` has it;
    `None` means that the compiled loss has them.
    """

    task: Any = None
    from_logits: Any = None
    moments: Callable | None = None
    noise: Sequence[Any] | None = None
    keep_samples: bool = False
    linearized: bool = False
    link: str | None = None
    positions: tuple[int, ...] = ()
    drops: bool = False
    blocks: tuple[tuple, ...] = ()
    covered: tuple[int, ...] = ()

    @classmethod
    def of(cls, options: PredictOptions, **of_graph: Any) -> "AverageOptions":
        """Returns the user's options together with those of the graph."""
        return cls(
            task=options.task,
            from_logits=options.from_logits,
            moments=options.moments,
            link=options.link,
            **of_graph,
        )

    def get_config(self) -> dict[str, Any]:
        """Returns what all samples share, for a `.keras` file."""
        return {
            "task": self.task,
            "from_logits": self.from_logits,
            "moments": _serialized_moments(self.moments),
            "noise": self.noise and [*map(_serialized_noise, self.noise)],
            "linearized": self.linearized,
            "link": self.link,
        }

    @classmethod
    def from_config(
        cls, config: dict[str, Any], custom_objects: dict | None = None
    ) -> "AverageOptions":
        """Returns the options that `get_config` described."""
        moments = _deserialized_moments(config["moments"], custom_objects)
        noise = config.get("noise")  # older files have none
        if noise is not None:
            noise = [_deserialized_noise(one, custom_objects) for one in noise]
        return cls(**{**config, "moments": moments, "noise": noise})


class NetworkAverage:
    """Averages each output of a model over posterior samples, in a graph.

    The forward pass of a sample s with weights w_s is
    `f(x, w_s) = model(x, training=False)`. With `linearized`, it is

        f(x, m) + J(x) (w_s - m),   J(x) = df(x, m) / dm                  (1)

    for the mean m of the posterior, computed as one Jacobian-vector product.
    A classifier is linear in its logits: `softmax(log p)` is p for the
    probabilities p of a model that returns no logits. A link uses the exact
    Gaussian of f in place of samples, see `_links`.

    The weights are arguments, so the model does not change.

    Attributes:
        outputs: A flat list of `DescribedOutput`, known after the first call.
        structure: The outputs in the structure of the model.
    """

    def __init__(
        self,
        model: Callable[[], Any],
        options: AverageOptions,
        *,
        uses_xla: Callable[[], bool],
    ):
        self.options = options
        self.outputs: list[DescribedOutput] = []
        self.structure: Any = None
        self._model = model
        self._uses_xla = uses_xla

    def fixed_values(self, values: Sequence[Any]) -> list[Any]:
        """Returns the second argument of a call, from those of a `SampleStack`.

        If `linearized`, the value of a varying variable is its mean. With a
        link, the arrays of the covariance follow.
        """
        replaced = self._replaced(self._model())
        return [v for i, v in enumerate(values) if i not in replaced]

    def __call__(
        self, inputs: Any, fixed: Sequence[Any], samples: Sequence[Any]
    ) -> list[dict[str, Any]]:
        """Returns a flat list: the average of each output, as tensors.

        `samples` have the samples on the first axis: one tensor for each of
        `options.positions` (minus the mean if `linearized`), then the key of
        the noise for `link="monte_carlo"`, then one for each seed generator.
        """
        model = self._model()
        arrays = [
            ops.convert_to_tensor(array) for array in keras.tree.flatten(inputs)
        ]
        replaced = self._replaced(model)
        others = [i for i in range(len(model.variables)) if i not in replaced]
        varying = [*self.options.positions, *seed_states(model)]
        draws_outputs = self.options.link == MONTE_CARLO

        def network(fixed: Any, sample: Any) -> Any:
            x = keras.tree.pack_sequence_as(inputs, fixed[: len(arrays)])
            fixed = fixed[len(arrays) :]
            values = dict(zip(others, fixed, strict=False))
            if self.options.link is not None:
                key = sample[0] if draws_outputs else None
                values |= zip(varying, sample[draws_outputs:], strict=True)
                return self._linked(x, values, fixed[len(others) :], key)
            return self._of_sample(
                x, values, dict(zip(varying, sample, strict=True))
            )

        return average_over_samples(
            network,
            [*arrays, *fixed],
            samples,
            examples=ops.shape(arrays[0])[0],  # an integer if known
            average=self._average,
            merge=self._merge,
            # The shapes of XLA are static.
            in_one_part=self._uses_xla() or self.options.keep_samples,
        )

    def _replaced(self, model: keras.Model) -> set[int]:
        """Returns the positions of variables whose mean is not needed."""
        positions = () if self.options.linearized else self.options.positions
        return {*positions, *seed_states(model)}

    def _of_sample(
        self, inputs: Any, values: dict[int, Any], sample: dict[int, Any]
    ) -> list[dict[str, Any]]:
        """Returns the outputs of one sample, a dictionary for each."""
        variables = self._model().variables
        sample = {
            i: ops.cast(value, variables[i].dtype)
            for i, value in sample.items()
        }
        if self.options.linearized:
            return self._linear(inputs, values, sample)
        outputs = self._call(inputs, values | sample)
        masks = masks_of(outputs)
        if self.options.moments is not None:
            return with_masks(self._moments(outputs), masks)
        self._describe(outputs)
        each = zip(self.outputs, keras.tree.flatten(outputs), strict=True)
        result = [
            output.values(at_least_float32(tensor)) for output, tensor in each
        ]
        return with_masks(result, masks)

    def _linear(
        self, inputs: Any, means: dict[int, Any], sample: dict[int, Any]
    ) -> list[dict[str, Any]]:
        """Returns the outputs (1), a dictionary for each."""
        positions = self.options.positions
        values = means | {i: v for i, v in sample.items() if i not in positions}
        raw: list = []  # what the network itself returns
        masks: list = []
        center, products = jvp(
            lambda: self._targets(self._call(inputs, values), raw, masks),
            [means[i] for i in positions],
            [sample[i] for i in positions],
        )
        linear = [sum(pair) for pair in zip(center, products, strict=True)]
        if self.options.moments is not None:
            outputs = keras.tree.pack_sequence_as(raw[0], linear)
            return with_masks(self._moments(outputs), masks)
        each = zip(self.outputs, linear, raw, strict=True)
        result = [
            output.linear_values(value, own) for output, value, own in each
        ]
        return with_masks(result, masks)

    def _targets(self, outputs: Any, raw: list, masks: list) -> list:
        """Returns the flat tensors in which a network is linear."""
        masks.extend(masks_of(outputs))
        if self.options.moments is not None:
            raw.append(outputs)
            return keras.tree.flatten(outputs)
        self._describe(outputs)
        raw.extend(map(at_least_float32, keras.tree.flatten(outputs)))
        each = zip(raw, self.outputs, strict=True)
        return [output.logits(tensor) for tensor, output in each]

    def _linked(
        self,
        inputs: Any,
        values: dict[int, Any],
        arrays: Sequence[Any],
        key: Any,
    ) -> list[dict[str, Any]]:
        """Returns what a link makes of the Gaussian of each output."""
        raw: list = []  # what the network itself returns
        masks: list = []

        def targets(outputs: Any) -> Any:
            if self.options.moments is not None:
                masks.extend(masks_of(outputs))
                raw.extend(self._moments(outputs))
                return [raw[0]["mean"]]
            self._targets(outputs, raw, masks)
            return [
                output.target(tensor)
                for tensor, output in zip(raw, self.outputs, strict=True)
            ]

        model = self._model()
        found = output_gaussians(
            model,
            inputs,
            [values[i] for i in range(len(model.variables))],
            layout=self.options.blocks,
            covered=self.options.covered,
            arrays=arrays,
            outputs_of=targets,
        )
        each = zip(self.outputs, found, raw, strict=True)
        result = [
            linked_values(output, self.options.link, gaussian, key, own)
            for output, gaussian, own in each
        ]
        return with_masks(result, masks)

    def _call(self, inputs: Any, values: dict[int, Any]) -> Any:
        model = self._model()
        pairs = [(v, values[i]) for i, v in enumerate(model.variables)]
        scope = keras.StatelessScope(pairs)
        with contextlib.ExitStack() as stack:
            if self.options.drops:
                stack.enter_context(dropout_on(model))
            if self.options.linearized:
                pooling = linear_pooling(model, xla=self._uses_xla())
                stack.enter_context(pooling)
            return stateless_call(model, inputs, scope, training=False)

    def _average(self, outputs: list[dict[str, Any]]) -> list[dict[str, Any]]:
        averages = [
            average_of(output.likelihood).of_samples(
                values, output.likelihood, self.options.keep_samples
            )
            for output, values in zip(self.outputs, outputs, strict=True)
        ]
        if self.options.link in EXACT_LINKS:
            averages = with_closed_form(averages, self.options.link, outputs)
        return averages

    def _merge(
        self, first: list, second: list, first_count: Any, second_count: Any
    ) -> list[dict[str, Any]]:
        return [
            merged(one, other, first_count, second_count)
            for one, other in zip(first, second, strict=True)
        ]

    def _moments(self, outputs: Any) -> list[dict[str, Any]]:
        moments: Any = self.options.moments
        values = moments_of(outputs, moments)
        self.outputs, self.structure = [MEAN], None
        return [values]

    def _describe(self, outputs: Any) -> None:
        """Sets `outputs` and `structure`."""
        self.outputs = described_outputs(self._model(), outputs, self.options)
        self.structure = keras.tree.map_structure(lambda _: None, outputs)


def _serialized_noise(noise: Any) -> Any:
    if noise is POISSON:
        return "poisson"
    return keras.saving.serialize_keras_object(noise)


def _deserialized_noise(config: Any, custom_objects: dict | None) -> Any:
    if config == "poisson":
        return POISSON
    return keras.saving.deserialize_keras_object(config, custom_objects)


def _serialized_moments(moments: Any) -> dict[str, Any] | None:
    """Returns a config; the method of a likelihood is stored with its owner."""
    if moments is None:
        return None
    owner = getattr(moments, "__self__", None)
    if owner is not None:
        return {"of": keras.saving.serialize_keras_object(owner)}
    return {"function": keras.saving.serialize_keras_object(moments)}


def _deserialized_moments(config: Any, custom_objects: dict | None) -> Any:
    if config is None:
        return None
    if "of" in config:
        owner = keras.saving.deserialize_keras_object(
            config["of"], custom_objects
        )
        return owner.moments
    return keras.saving.deserialize_keras_object(
        config["function"], custom_objects
    )
