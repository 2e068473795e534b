"""What an SGLang server decides at each step: who is prefilled, who decodes, who is put back."""
