"""Step times composed of operator times that the package aiconfigurator-core has measured."""
