"""The KV cache: requests' pages, the radix tree of cached prefixes, and host memory below it."""
