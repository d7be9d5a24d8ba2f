"""What results look like: exhibits as values, one style for all figures, and the plots that experiments share."""
