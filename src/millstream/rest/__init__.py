"""Servers of HTTP beside jobs: the thread that serves, and who may use it."""
