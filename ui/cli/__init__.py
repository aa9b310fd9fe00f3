"""The command line: one module of commands for each thing that is done."""
