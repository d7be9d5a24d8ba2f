"""Records of what was measured, and claims of the paper that they decide; nothing here needs torch."""
