"""What do these numbers say? Statistics of curves; numpy alone."""
