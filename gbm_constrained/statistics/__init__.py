"""What a sample says of a population."""
