"""Random numbers of a forward pass, different on every replica."""

import tensorflow as tf


def next_seed(seed_generator):
    """Returns the next seed of a `keras.random.SeedGenerator`.

    Replicas see different examples and would, with the same draw of the
    weights, average over fewer draws than they could.
    """
    context = tf.distribute.get_replica_context()
    replica = context.replica_id_in_sync_group if context is not None else 0
    return tf.random.experimental.stateless_fold_in(
        seed_generator.next(), replica
    )


def normal(shape, seed):
    """Returns standard normal numbers."""
    return tf.random.stateless_normal(shape, seed)


def signs(shape, dtype, seed):
    """Returns numbers that are +1 or -1 with equal probability."""
    bits = tf.random.stateless_uniform(shape, seed, 0, 2, dtype=tf.int32)
    return tf.cast(2 * bits - 1, dtype)


def split(seed):
    """Returns two seeds that are independent of each other."""
    return tf.unstack(tf.random.experimental.stateless_split(seed, 2))
