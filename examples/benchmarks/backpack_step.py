"""Cost of squared gradients with BackPACK, relative to Adam in PyTorch.

    python examples/benchmarks/backpack_step.py [--smoke]

A step has the second moments of `SumGradSquared`, and draws no weights. The
networks are those of `curvature.py`, in batches of 128. Needs the extra
`bench`.
"""

import argparse
import os

import numpy as np
from timing import ratio

BATCH = 128
IMAGES = {"LeNet-5": (1, 28, 28), "MLP": (784,)}


def network(name):
    """Returns a network of PyTorch."""
    from torch import nn

    if name == "MLP":
        return nn.Sequential(
            nn.Linear(784, 400),
            nn.ReLU(),
            nn.Linear(400, 400),
            nn.ReLU(),
            nn.Linear(400, 10),
        )
    return nn.Sequential(
        nn.Conv2d(1, 6, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(400, 120),
        nn.ReLU(),
        nn.Linear(120, 84),
        nn.ReLU(),
        nn.Linear(84, 10),
    )


def steps_of(name, batch, squares):
    """Returns a function that makes a step, with or without the squares."""
    import backpack
    import torch
    from backpack.extensions import SumGradSquared

    rng = np.random.default_rng(0)
    x = torch.tensor(rng.normal(size=(batch, *IMAGES[name])).astype("float32"))
    y = torch.tensor(rng.integers(0, 10, batch))
    net, loss = network(name), torch.nn.CrossEntropyLoss()
    if squares:
        net, loss = backpack.extend(net), backpack.extend(loss)
    optimizer = torch.optim.Adam(net.parameters(), 1e-3)

    def run():
        optimizer.zero_grad()
        value = loss(net(x), y)
        if squares:
            with backpack.backpack(SumGradSquared()):
                value.backward()
        else:
            value.backward()
        optimizer.step()
        return float(value.detach())

    return run


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--smoke", action="store_true", help="seconds only")
    smoke = parser.parse_args().smoke
    try:
        import backpack  # noqa: F401
        import torch
    except ImportError:
        print("BackPACK is not installed")
        return
    torch.set_num_threads(os.cpu_count())
    batch, rounds = (8, 1) if smoke else (BATCH, 200)
    for name in IMAGES:
        plain = steps_of(name, batch, False)
        value = ratio(steps_of(name, batch, True), plain, rounds)
        print(f"{f'{name}, BackPACK / Adam of PyTorch':52}{value!s:>22}")


if __name__ == "__main__":
    main()
