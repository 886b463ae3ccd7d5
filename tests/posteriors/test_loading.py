import numpy as np
import pytest

from keras_bdl._saving._state_file import write_state
from keras_bdl.posteriors import load


@pytest.mark.parametrize("state", [{"kind": "a>B"}, {"weights": np.ones(2)}, 3])
def test_a_file_of_something_else_is_refused(state, storage):
    write_state(storage / "p.bdl", state)
    with pytest.raises(
        ValueError, match="must hold a posterior.*Received: kind="
    ):
        load(storage / "p.bdl")
