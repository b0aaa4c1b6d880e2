"""scripts/fetch_mlx.py with a pip that brings what a test wants it to bring."""
import hashlib
import importlib.util
import io
import json
import pathlib
import stat
import sys
import tempfile
import unittest
import zipfile
from unittest import mock

sys.dont_write_bytecode = True
ROOT = pathlib.Path(__file__).resolve().parents[2]
SPEC = importlib.util.spec_from_file_location("fetch_mlx", ROOT / "scripts/fetch_mlx.py")
fetch_mlx = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(fetch_mlx)

CONFIG = "mlx/share/cmake/MLX/MLXConfig.cmake"
WHEEL = "mlx_cpu-1.2.3-py3-none-any.whl"


def wheel_of(members):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, text in members:
            archive.writestr(name, text)
    return buffer.getvalue()


GOOD = wheel_of([(CONFIG, "config"), ("mlx/lib/libmlx.so", "library"),
                 ("mlx_cpu.libs/libblas.so", "blas")])


class FetchMlx(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        self.destination = self.root / "deps" / "mlx"

    def fetch(self, content, sha256=None, system=("linux", "x86_64"), variant="cpu", name=WHEEL):
        pin = {"file": WHEEL, "sha256": sha256 or hashlib.sha256(content).hexdigest(),
               "platform": "manylinux_2_35_x86_64", "system": "linux", "machine": "x86_64"}
        pins = self.root / "pins.json"
        pins.write_text(json.dumps({"version": "1.2.3", "variants": {"cpu": {"wheels": [pin]}}}))

        def pip(command, **_):
            folder = pathlib.Path(command[command.index("--dest") + 1])
            (folder / name).write_bytes(content)
            self.command = command
            return mock.Mock(returncode=0)

        with mock.patch.object(fetch_mlx, "PINS", pins), \
                mock.patch.object(fetch_mlx, "this_system", lambda: system), \
                mock.patch.object(fetch_mlx, "python_with_pip", lambda: "python3"), \
                mock.patch.object(fetch_mlx.subprocess, "run", pip), \
                mock.patch.object(sys, "stderr", io.StringIO()):
            fetch_mlx.fetch(variant, self.destination)

    def refused(self, text, *arguments, **options):
        with self.assertRaises(fetch_mlx.FetchError) as caught:
            self.fetch(*arguments, **options)
        self.assertIn(text, str(caught.exception))
        self.assertFalse(self.destination.exists())
        left = list(self.destination.parent.iterdir()) if self.destination.parent.exists() else []
        self.assertEqual(left, [])

    def test_unpacks_package_and_libraries_side_by_side(self):
        self.fetch(GOOD)
        self.assertEqual((self.destination / CONFIG).read_text(), "config")
        self.assertEqual((self.destination / "mlx_cpu.libs/libblas.so").read_text(), "blas")
        self.assertEqual([path.name for path in self.destination.parent.iterdir()], ["mlx"])
        self.assertEqual(self.command[-1], "mlx-cpu==1.2.3")
        self.assertIn("--no-deps", self.command)

    def test_replaces_an_incomplete_copy(self):
        self.destination.mkdir(parents=True)
        (self.destination / "half").write_text("")
        self.fetch(GOOD)
        self.assertFalse((self.destination / "half").exists())

    def test_another_hash(self):
        self.refused("sha256", GOOD, sha256="0" * 64)

    def test_another_file(self):
        self.refused("pip brought other.whl", GOOD, name="other.whl")

    def test_a_wheel_without_the_package(self):
        self.refused("is not in it", wheel_of([("mlx/lib/libmlx.so", "")]))

    def test_members_that_leave_the_folder(self):
        for name in ["../evil", "mlx/../../evil", "/etc/evil"]:
            self.refused("is refused", wheel_of([(CONFIG, ""), (name, "")]))

    def test_a_link(self):
        link = zipfile.ZipInfo("mlx/link")
        link.external_attr = (stat.S_IFLNK | 0o777) << 16
        self.refused("is refused", wheel_of([(CONFIG, ""), (link, "/etc")]))

    def test_an_unknown_variant(self):
        self.refused("no variant 'rocm'", GOOD, variant="rocm")

    def test_another_machine(self):
        self.refused("is not made for linux riscv64", GOOD, system=("linux", "riscv64"))


class Pins(unittest.TestCase):
    """cmake/mlx_wheels.json itself."""

    def setUp(self):
        self.pins = json.loads((ROOT / "cmake/mlx_wheels.json").read_text())

    def test_every_variant_has_wheels_of_the_one_version(self):
        self.assertEqual(set(self.pins["variants"]), {"cpu", "cuda12", "cuda13", "metal"})
        for name, variant in self.pins["variants"].items():
            self.assertTrue(variant["wheels"], name)
            for wheel in variant["wheels"]:
                self.assertEqual(wheel["file"].split("-")[1], self.pins["version"])

    def test_hashes_are_sha256_and_all_differ(self):
        hashes = [wheel["sha256"] for variant in self.pins["variants"].values()
                  for kind in ("wheels", "libraries") for wheel in variant.get(kind, [])]
        for digest in hashes:
            self.assertRegex(digest, r"\A[0-9a-f]{64}\Z")
        self.assertEqual(len(hashes), len(set(hashes)))


if __name__ == "__main__":
    unittest.main()
