"""Pages and figures that show results; nothing is measured here."""
