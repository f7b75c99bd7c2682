"""Helpers of all rooms; nothing here is public."""
