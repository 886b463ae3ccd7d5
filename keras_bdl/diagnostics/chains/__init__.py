"""Statistics of Markov chains: have they converged, how many samples count.

Gradients are in `gradients`, the loss around a solution in `loss_surface`.
"""
