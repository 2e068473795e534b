"""What a server's `/metrics` says: one scrape, a dump of many, and the windows between them."""
