"""Lowering: from the planned nodes to transformations with operator factories."""
