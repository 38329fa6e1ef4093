"""The command `diagnose`, also as `python -m diagnose`."""

import gc
import os


def main() -> None:
    """Run the command of this process's arguments."""
    # A short-lived process without cycles to speak of: looking for garbage while it imports and
    # makes the events of a large job costs a tenth of its time for nothing.
    gc.set_threshold(5_000_000, 50, 100)
    try:
        from diagnose.process import prepare  # noqa: PLC0415

        prepare()
    except KeyboardInterrupt:
        os._exit(130)
    from diagnose.cli.main import main as command  # noqa: PLC0415  takes a while

    command()


if __name__ == "__main__":
    main()
