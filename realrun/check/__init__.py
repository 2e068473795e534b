"""Does the paged runner compute what transformers computes? Comparisons by logits."""
