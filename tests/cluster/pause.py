"""The image that holds a pod's namespaces: one static program, packed by hand because nothing can be pulled."""

import hashlib
import io
import json
import tarfile
from pathlib import Path

from tests.cluster.layout import PAUSE_IMAGE
from tests.cluster.processes import run

SOURCE = """
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
static void end(int signal) { (void)signal; exit(0); }
static void reap(int signal) { (void)signal; while (waitpid(-1, 0, WNOHANG) > 0); }
int main(void) {
    signal(SIGINT, end);
    signal(SIGTERM, end);
    signal(SIGCHLD, reap);
    for (;;) pause();
}
"""


def build_pause(folder: Path) -> Path:
    """Compile the program and return the path of its docker-archive."""
    folder.mkdir(exist_ok=True)
    (folder / "pause.c").write_text(SOURCE)
    run("gcc", "-static", "-Os", "-s", "-o", str(folder / "pause"), str(folder / "pause.c"))
    archive = folder / "pause.tar"
    archive.write_bytes(docker_archive(PAUSE_IMAGE, "pause", (folder / "pause").read_bytes()))
    return archive


def docker_archive(ref: str, name: str, program: bytes) -> bytes:
    """Return an image of one layer that holds and starts one program."""
    layer = tar({name: program}, 0o755)
    diff = "sha256:" + hashlib.sha256(layer).hexdigest()
    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": {"Entrypoint": [f"/{name}"]},
        "rootfs": {"type": "layers", "diff_ids": [diff]},
    }
    manifest = [{"Config": "config.json", "RepoTags": [ref], "Layers": ["layer.tar"]}]
    documents = {"manifest.json": manifest, "config.json": config}
    return tar({**{file: json.dumps(value).encode() for file, value in documents.items()}, "layer.tar": layer}, 0o644)


def tar(entries: dict[str, bytes], mode: int) -> bytes:
    """Return files as a tar."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, content in entries.items():
            info = tarfile.TarInfo(name)
            info.size, info.mode = len(content), mode
            archive.addfile(info, io.BytesIO(content))
    return out.getvalue()
