"""What all command lines of the project share: options, exit codes, and one-line errors.

Results go to stdout, diagnostics to stderr. A file called `-` is standard input. Exit codes: 0
done; 1 a comparison or a run failed, or the program has a defect; 2 bad input; 130 interrupted; 143
terminated.
"""
