"""An HTTP server with OpenAI's interface: the front of simulated servers and of a real one."""
