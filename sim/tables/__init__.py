"""Tables as plain text, HTML and CSV, and how they write numbers. No library is loaded."""
