"""What each statement does, and its results."""
