"""The binder: from names and syntax to columns, types and the logical plan."""
