"""`python -m sim.compiled` compiles the hot modules if need be, and never fails."""

from sim.compiled.build import up_to_date_build

if __name__ == "__main__":
    up_to_date_build()
