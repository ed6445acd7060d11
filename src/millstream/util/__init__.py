"""``pyflink.util``: the exceptions that programs import."""
