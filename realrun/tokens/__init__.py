"""Which tokens a real server generates: scripted or sampled, and drafts of them."""
