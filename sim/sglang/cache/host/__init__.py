"""The part of the KV memory for host memory below the device's."""
