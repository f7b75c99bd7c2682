"""`python -m sonde`."""

from sonde.cli import main

if __name__ == "__main__":  # a config may name any module of Sonde
    main()
