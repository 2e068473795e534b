"""Step times of a server from the text logs that it wrote."""
