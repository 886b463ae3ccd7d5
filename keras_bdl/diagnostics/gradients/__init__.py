"""Noise of gradients: from minibatches and from weight samples.

Chains are in `chains`, the loss around a solution in `loss_surface`.
"""
