"""`python -m sim.compiled` makes a build of the hot modules, unless there is one of these sources.

If it cannot be made, one line on stderr says why, and the exit code is 0 all the same.
"""

from sim.compiled.build import up_to_date_build

if __name__ == "__main__":
    up_to_date_build()
