"""Aggregates computed on Arrow columns, with the kernels that Arrow does not have."""
