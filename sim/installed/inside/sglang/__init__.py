"""SGLang's own scheduler."""
