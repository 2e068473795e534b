"""The real server behind OpenAI's interface: what clients send, and what they are answered."""
