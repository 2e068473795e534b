"""How an engine takes in the results of a step, and the inter-token latencies that follow."""
