"""`python -m heedful`, which `torchrun` uses too."""

from heedful.cli import main

if __name__ == "__main__":
    main()
