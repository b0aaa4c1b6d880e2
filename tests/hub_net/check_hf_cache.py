"""check_hf_cache.py ENDPOINT CACHE REPO COMMIT: what huggingface_hub makes of a cache that mlxx wrote.

It must scan it without a complaint, find the snapshot in it without a server, and, pulling the same files itself into
an empty cache, end with the same blobs, links and refs. Prints what differs; exit code 1 if anything does.
"""

import os
import sys
import tempfile
from pathlib import Path

endpoint, cache, repo, commit = sys.argv[1:]
os.environ["HF_ENDPOINT"] = endpoint
os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"
os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"

from huggingface_hub import scan_cache_dir, snapshot_download  # noqa: E402

problems = []


def expect(what, found, wanted):
    if found != wanted:
        problems.append(f"{what}: {found!r}, expected {wanted!r}")


def layout(root):
    """Path -> link target or content, without locks and huggingface_hub's own notes."""
    folder = Path(root) / ("models--" + repo.replace("/", "--"))
    found = {}
    for part in ("blobs", "refs", "snapshots"):
        for path in sorted((folder / part).rglob("*")):
            name = str(path.relative_to(folder))
            if path.is_symlink():
                found[name] = "-> " + os.readlink(path)
            elif path.is_file():
                found[name] = path.read_bytes()
    return found


info = scan_cache_dir(cache)
expect("warnings", [str(warning) for warning in info.warnings], [])
expect("repositories", sorted(r.repo_id for r in info.repos), [repo])
(scanned,) = info.repos
(revision,) = scanned.revisions
expect("commit", revision.commit_hash, commit)
expect("refs", revision.refs, frozenset({"main"}))
names = sorted(str(f.file_path.relative_to(revision.snapshot_path)) for f in revision.files)
expect("size", scanned.size_on_disk, sum(f.size_on_disk for f in revision.files))

offline = snapshot_download(repo, cache_dir=cache, local_files_only=True)
expect("snapshot found offline", offline, str(revision.snapshot_path))

with tempfile.TemporaryDirectory() as other:
    snapshot_download(repo, cache_dir=other, allow_patterns=names)
    theirs, ours = layout(other), layout(cache)
    for name in sorted(theirs.keys() | ours.keys()):
        expect(name, ours.get(name), theirs.get(name))
    expect("CACHEDIR.TAG", (Path(cache) / "CACHEDIR.TAG").exists(), (Path(other) / "CACHEDIR.TAG").exists())

strategy = info.delete_revisions(commit)
strategy.execute()
expect("left after huggingface_hub's own removal", layout(cache), {})

for problem in problems:
    print(problem)
sys.exit(1 if problems else 0)
