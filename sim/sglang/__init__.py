"""Which requests run next: order, admission, preemption, retraction."""
