"""Canonical savepoints: all state of a checkpoint as Parquet, and native state made from it.

``value_form`` decides which Python values a column holds exactly, ``layout`` turns entries of a
store into rows and back, ``write`` and ``restore`` do that for a whole checkpoint.
"""
