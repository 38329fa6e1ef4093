"""The command `diagnose`, also as `python -m diagnose`."""

import os


def main() -> None:
    """Run the command of this process's arguments."""
    try:
        from diagnose import process  # noqa: PLC0415

        process.prepare()
    except KeyboardInterrupt:
        os._exit(130)
    from diagnose.cli.main import main as command  # noqa: PLC0415  takes a while

    command()


if __name__ == "__main__":
    main()
