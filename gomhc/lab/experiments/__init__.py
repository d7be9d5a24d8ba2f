"""What is claimed, and does it hold? One file a claim; each yields rows."""
