"""What an SGLang server decides at each step: which requests prefill, decode or are put back."""
