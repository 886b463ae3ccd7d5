"""Statistics of Markov chains: convergence and effective sample size.

Gradients are in `gradients`, the loss around a solution in `loss_surface`.
"""
