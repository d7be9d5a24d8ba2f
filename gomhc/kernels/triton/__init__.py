"""Triton kernels for a GPU: each operation in one launch. Importing a module of this package takes Triton.

`launch` runs a kernel; `tiles` has what kernels share; `triton_map`, `triton_sinkhorn`, `triton_permutations` make
matrices of logits; `triton_streams` reads and writes streams, and `triton_product` multiplies rows. The plain versions
are in `plain_map.py`, `plain_streams.py` and the mixings. Nothing here records gradients: each `*_forward` stands
beside the `*_backward` that takes the gradients of its results.
"""
