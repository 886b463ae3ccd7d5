"""The loss around a solution: cross-sections, planes and curvature.

Chains are in `chains`, the noise of gradients in `gradients`.
"""
