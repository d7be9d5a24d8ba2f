"""Comparison of methods: each is trained on the same batches from the same weights, with several seeds."""
