"""The test cluster's command line: `python -m tests.cluster VERB`, from the top of the repository."""

import argparse
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from tests.cluster import binaries, node, provide
from tests.cluster.layout import COMPONENTS, Layout, layout
from tests.cluster.processes import NotUp, enter, start, stop


def parser() -> argparse.ArgumentParser:
    """Return the command line's grammar."""
    top = argparse.ArgumentParser(prog="python -m tests.cluster", description=__doc__)
    verbs = top.add_subparsers(dest="verb", required=True)
    verbs.add_parser("build", help="compile what is missing")
    verbs.add_parser("prepare", help="the same, unless `run` would use another cluster")
    verbs.add_parser("packages", help="print the Debian packages that `run` needs and this machine lacks")
    verbs.add_parser("images", help="build the images if needed and load them into the node")
    verbs.add_parser("up", help="start a new node; one that is up is replaced")
    verbs.add_parser("down", help="end the node and remove its state")
    verbs.add_parser("kubeconfig", help="print the path of the kubeconfig")
    for verb, text in (("kill", "end a component by SIGKILL"), ("start", "start a component again")):
        verbs.add_parser(verb, help=text).add_argument("name", choices=COMPONENTS)
    verbs.add_parser("load", help="import an image archive").add_argument("archive", type=Path)
    verbs.add_parser("enter", help="run a command in the node").add_argument("argv", nargs=argparse.REMAINDER)
    run = verbs.add_parser("run", help="run a command with KUBECONFIG of a cluster that has the images")
    run.add_argument("argv", nargs=argparse.REMAINDER)
    return top


def show_packages(at: Layout) -> None:
    """Print what this machine lacks, nothing when another cluster is at hand."""
    print(*[] if provide.is_elsewhere() else binaries.missing_packages())


def show_kubeconfig(at: Layout) -> None:
    """Print where a client finds the cluster."""
    print(at.kubeconfig)


SIMPLE: dict[str, Callable[[Layout], None]] = {
    "build": binaries.build,
    "prepare": provide.prepare,
    "packages": show_packages,
    "images": provide.load_images,
    "up": node.up,
    "down": node.down,
    "kubeconfig": show_kubeconfig,
}


def main() -> int:
    """Do what the command line says."""
    arguments, at = parser().parse_args(), layout()
    match arguments.verb:
        case "kill":
            stop(at, arguments.name, signal.SIGKILL)
        case "start":
            start(at, arguments.name)
        case "load":
            node.load(at, arguments.archive)
        case "enter":
            argv = [*enter(at), *arguments.argv]
            os.execvp(argv[0], argv)
        case "run":
            return provide.run(at, arguments.argv)
        case simple:
            SIMPLE[simple](at)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (NotUp, RuntimeError) as error:
        sys.exit(f"tests.cluster: {error}")
