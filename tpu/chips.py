"""A strategy that stands for many TPU chips on a machine that has none."""

import tensorflow as tf
from tensorflow.compiler.tf2xla.ops import gen_xla_ops

# No public strategy lets a caller choose its collectives.
from tensorflow.python.distribute import one_device_strategy


class Chips(tf.distribute.OneDeviceStrategy):
    """Traces the program that every one of many chips would run.

    `run` traces the step once, as one of `chips` replicas: sums over replicas
    become all-reduces, and the number of the replica is asked of the chip.
    The trace can be lowered for TPUs, and not run here. Models are made and
    compiled as for one device. What `TPUStrategy` does besides is missing:
    reading of data, and the mean over replicas of the moving statistics of
    BatchNorm.

    Args:
        chips: Number of replicas.
    """

    def __init__(self, chips: int):
        # Not the `__init__` of the parent: that makes another extension.
        tf.distribute.Strategy.__init__(self, _Extended(self, chips))


class _Extended(one_device_strategy.OneDeviceExtended):
    def __init__(self, strategy, chips):
        super().__init__(strategy, "/cpu:0")
        self._chips = chips
        self._tracing = False

    @property
    def _num_replicas_in_sync(self):
        return self._chips if self._tracing else 1

    def _call_for_each_replica(self, fn, args, kwargs):
        context = tf.distribute.ReplicaContext(
            self._container_strategy(),
            replica_id_in_sync_group=gen_xla_ops.xla_replica_id(),
        )
        self._tracing = True
        try:
            with tf.device("/cpu:0"), context:
                return fn(*args, **kwargs)
        finally:
            self._tracing = False

    def _reduce_to(self, reduce_op, value, destinations, options):
        mean = reduce_op == tf.distribute.ReduceOp.MEAN

        def reduced(tensor):
            # The only all-reduce that TensorFlow lowers without a TPU.
            total = tf.raw_ops.CollectiveReduceV2(
                input=tensor,
                group_size=self._chips,
                group_key=1,
                instance_key=1,
                ordering_token=[],
                merge_op="Add",
                final_op="Id",
            )
            return total / self._chips if mean else total

        return tf.nest.map_structure(reduced, value)
