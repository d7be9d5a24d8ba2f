"""The experiments: one file each, with its runs, its claims, its findings and its figure."""
