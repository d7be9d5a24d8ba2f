"""How does text become batches of tokens?"""
