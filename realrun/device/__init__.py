"""The device: its memory, its queue of work, and its clock."""
