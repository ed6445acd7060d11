"""What programs import of ``pyflink.util``: the exceptions."""
