"""Corpora, tokenizers and batches of tokens."""
