"""Directories on the local disk: whose they are, and those that live as long as a run."""
