"""How good are a model's stories? Stories, scores by language models, tables with their uncertainty."""
