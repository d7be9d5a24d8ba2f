"""How are results shown? They come from rows that an experiment measured, and nothing is measured here."""
