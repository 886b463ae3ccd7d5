"""Random bits of a forward pass are Philox blocks with known numbers."""

import numpy as np
import pytest
import tensorflow as tf

from keras_bdl._random import _noise as forward_pass_noise

SEEDS = {
    "tuple": (3, 5),
    "negative": tf.constant([-2, -(2**31)], "int32"),
    "uint32": tf.constant([2**32 - 1, 2**31], "uint32"),
    "int64": tf.constant([-(2**63), 2**63 - 1], "int64"),
}


def philox(seed, blocks):
    """Returns four 32-bit words for each block: Philox4x32 with 10 rounds."""
    low = 2**32 - 1
    key, upper = (int(s) % 2**64 for s in seed)
    found = []
    for block in blocks:
        words = [block & low, block >> 32, upper & low, upper >> 32]
        keys = [key & low, key >> 32]
        for _ in range(10):
            p, q = 0xD2511F53 * words[0], 0xCD9E8D57 * words[2]
            words = [
                *(q >> 32 ^ words[1] ^ keys[0], q & low),
                *(p >> 32 ^ words[3] ^ keys[1], p & low),
            ]
            keys = [keys[0] + 0x9E3779B9 & low, keys[1] + 0xBB67AE85 & low]
        found.append(words)
    return np.array(found, "uint32")


@pytest.mark.parametrize("compiled", [False, True], ids=["plain", "XLA"])
@pytest.mark.parametrize("name", SEEDS)
def test_numbers_and_new_seeds_of_a_seed_are_different_blocks(name, compiled):
    # Philox maps different blocks of one seed to different words.
    seed, data = SEEDS[name], [0, 1, 2**31]

    @tf.function(jit_compile=compiled)
    def found():
        folded = [forward_pass_noise.fold_in(seed, d) for d in data]
        of_tensor = forward_pass_noise.fold_in(seed, tf.constant(1))
        streams = [
            forward_pass_noise.uniform((3, 4), seed, stream)
            for stream in (0, 2**16 - 1)
        ]
        return streams, folded, of_tensor

    streams, folded, of_tensor = found()
    for uniforms, first in zip(streams, (0, 2**60 - 2**44), strict=True):
        bits = philox(seed, [first, first + 1, first + 2]).view("int32")
        expected = forward_pass_noise.of_bits(bits)
        np.testing.assert_array_equal(uniforms, expected)
    words = philox(seed, [2**60 + d for d in data])
    np.testing.assert_array_equal(np.stack(folded), words.view("int64"))
    np.testing.assert_array_equal(of_tensor, folded[1])
