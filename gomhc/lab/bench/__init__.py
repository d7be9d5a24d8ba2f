"""Time and memory of the methods beside each other."""
