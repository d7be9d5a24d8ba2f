"""What was measured, and what does it say of the paper? Records and claims; nothing here knows torch."""
