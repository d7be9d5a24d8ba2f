"""Hyper-connections and doubly stochastic weights in the modules and models that people already use."""
