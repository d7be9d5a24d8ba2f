"""Benchmarks: time, memory and exactness of the methods."""
