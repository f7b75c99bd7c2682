"""What every room uses and no user sees."""
