"""What is known of one type of layer."""

from keras import ops

from keras_bdl.curvature.reductions import sum_and_squares


class Rule:
    """How the weights of a type of layer enter its outputs.

    A layer is run as it is. Of each of its calls, what went in and z, what
    came out before the activation, are kept, and the loss is differentiated
    by z. The rule makes gradients by the weights from these, the contribution
    of example i being

        g_i = sum over calls, positions of dz_i dL/dz_i                   (1)

    which is linear in the cotangents dL/dz. Derive from this class and
    register the rule, see `register_rule`; `weights` and `per_example` are
    enough.

    Attributes:
        taps: `"pre-activation"`, where z is what the layer gives to its
            `activation`, if it has one; or `"output"`.
        calls_again: Whether `per_example` calls the layer, which then must
            do the same each time.

    Example:

    ```python
    @bdl.curvature.register_rule(Scale)
    class ScaleRule(bdl.curvature.Rule):
        def weights(self, layer):
            return [layer.scale]

        def per_example(self, layer, inputs, cotangents):
            return [keras.ops.sum(inputs * cotangents, axis=1)]
    ```
    """

    taps = "pre-activation"
    calls_again = False

    def weights(self, layer):
        """Returns the variables of the layer that this rule is about.

        Those that train must be among them all; the layer is refused
        otherwise.

        Args:
            layer: The layer, built.
        """
        raise NotImplementedError

    def run(self, layer, call, inputs, *args, **kwargs):
        """Calls the layer.

        Args:
            layer: The layer.
            call: Its own `call`.
            inputs: Its first argument.
            *args: Other arguments.
            **kwargs: Other arguments.

        Returns:
            What `per_example` will be given for `inputs`, any nest of
            tensors, and the output of the layer.
        """
        return inputs, call(inputs, *args, **kwargs)

    def per_example(self, layer, inputs, cotangents):
        """Returns (1) for one call.

        May read the values of variables, which are those that the call used.

        Args:
            layer: The layer.
            inputs: What `run` returned for it; the first axis are examples.
            cotangents: dL/dz, of the shape of z and at least in float32.

        Returns:
            A tensor of shape `(examples, *weight.shape)` for each of
            `weights`.
        """
        raise NotImplementedError

    def moments(self, layer, calls, example_weights):
        """Returns the sums over the examples of g_i and of v_i g_i^2.

        To be overridden where they are had without the g_i.

        Args:
            layer: The layer.
            calls: Pairs of inputs and cotangents, one a call.
            example_weights: The v_i, a tensor `(examples,)`.

        Returns:
            Two tensors of the shape of the weight for each of `weights`.
        """
        gradients = self.summed_per_example(layer, calls)
        return [sum_and_squares(g, example_weights) for g in gradients]

    def summed_per_example(self, layer, calls):
        """Returns (1) for all calls.

        Args:
            layer: The layer.
            calls: Pairs of inputs and cotangents, one a call.
        """
        each = [self.per_example(layer, *call) for call in calls]
        return [sum(parts[1:], parts[0]) for parts in zip(*each, strict=True)]

    def matrix_shape(self, layer):
        """Returns `(in, out)` if the kernel is a matrix, `None` otherwise.

        Args:
            layer: The layer, built.
        """
        return None

    def rows(self, layer, inputs, cotangents):
        """Returns what the Kronecker factors of a layer are made of.

        Args:
            layer: The layer, one that has a `matrix_shape`.
            inputs: What `run` returned for it.
            cotangents: dL/dz.

        Returns:
            The inputs of the matrix, `(examples, positions, in)`, and the
            cotangents `(examples, positions, out)`.
        """
        raise NotImplementedError

    def bias_of_rows(self, layer):
        """Returns the variable that a one behind the inputs multiplies.

        Args:
            layer: The layer, one that has a `matrix_shape`.
        """
        return layer.bias


def summed_over_positions(cotangents, channel_axis=-1):
    """Returns the sum over all axes but those of examples and channels.

    Args:
        cotangents: A tensor.
        channel_axis: The axis of the channels. Defaults to the last.
    """
    rank = len(cotangents.shape)
    axes = [a for a in range(1, rank) if a != channel_axis % rank]
    return ops.sum(cotangents, axis=axes) if axes else cotangents
