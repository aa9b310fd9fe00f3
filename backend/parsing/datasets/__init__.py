"""Data files and their registry, as the trainer will read them."""
