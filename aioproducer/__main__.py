"""`python -m aioproducer`: the `aioproducer` command, where its script is not on the path."""

from aioproducer.cli.main import app

if __name__ == "__main__":
    app()
