"""What other programs write, as rows of YAML with samples, and the tables made of them."""
