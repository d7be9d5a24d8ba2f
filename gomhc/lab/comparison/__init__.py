"""Comparison of methods: each is trained on the same batches from twin weights, with several seeds."""
