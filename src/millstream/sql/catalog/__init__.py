"""Catalogs: what tables, views and functions there are, and how tables reach connectors."""
