"""Where the stack of each rank stands, and which stands apart."""
