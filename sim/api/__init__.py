"""An HTTP server with OpenAI's interface before simulated servers."""
