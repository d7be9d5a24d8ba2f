"""Stories of trained models, scores that language models give them, and statistics of the scores."""
