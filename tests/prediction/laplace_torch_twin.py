"""Fits laplace-torch to a network whose weights lie in a file.

A process of its own: TensorFlow and the libraries that laplace-torch imports
cannot be loaded in any order.

    python laplace_torch_twin.py IN.npz OUT.npz SUBSET STRUCTURE
"""

import sys

import laplace
import numpy as np
import torch


def main(source, target, subset, structure):
    data = np.load(source)
    network = []
    for kernel, bias in (("kernel_0", "bias_0"), ("kernel_1", "bias_1")):
        layer = torch.nn.Linear(*data[kernel].shape, bias=bias in data)
        layer.weight.data = torch.tensor(data[kernel].T.copy())
        if bias in data:
            layer.bias.data = torch.tensor(data[bias])
        network.append(layer)
    network.insert(1, torch.nn.Tanh())
    x, y = torch.tensor(data["x"]), torch.tensor(data["y"])
    is_classifier = not torch.is_floating_point(y)
    options = {} if is_classifier else {"sigma_noise": float(data["noise"])}
    posterior = laplace.Laplace(
        torch.nn.Sequential(*network),
        "classification" if is_classifier else "regression",
        subset_of_weights=subset,
        hessian_structure=structure,
        prior_precision=2.0,
        **options,
    )
    rows = torch.utils.data.TensorDataset(x, y)
    posterior.fit(torch.utils.data.DataLoader(rows, 20))
    x_test = torch.tensor(data["x_test"])
    if is_classifier:
        found = {"mean": posterior(x_test, link_approx="probit")}
    else:
        mean, variance = posterior(x_test)
        found = {"mean": mean, "variance": variance[..., 0]}
    np.savez(target, **{k: v.detach().numpy() for k, v in found.items()})


main(*sys.argv[1:])
