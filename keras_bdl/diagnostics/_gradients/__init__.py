"""Noise of gradients, from minibatches and from posterior samples.

Chains are in `chains`, the loss around a solution in `loss_surface`.
"""
