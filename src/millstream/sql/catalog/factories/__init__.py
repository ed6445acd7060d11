"""Table factories, one module per connector."""
