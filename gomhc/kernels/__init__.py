"""How is this operation computed? One file an operation; each has a plain torch version that reads as its equation."""
