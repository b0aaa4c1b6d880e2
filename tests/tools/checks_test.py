"""Each check of tools/ must find what it is there to find.

Makes a small repository with a copy of the tool, breaks one thing at a time,
and looks for the line about it.
"""
import pathlib
import shutil
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]


class Repository(unittest.TestCase):
    tool = None

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name).resolve()
        subprocess.run(["git", "init", "-q", self.root], check=True)
        (self.root / "tools").mkdir()
        shutil.copy(ROOT / "tools" / self.tool, self.root / "tools")
        self.write("mlxx/base/error.h", "#pragma once\nvoid fail();\n")
        self.write("mlxx/core/device.h", '#pragma once\n#include "mlxx/base/error.h"\n')
        self.write("apps/mlxx/list_command.cpp", 'app.add_subcommand("list", "")\n')
        self.write("docs/environment.md", "# Variables\n\n`MLXX_KNOWN` is known.\n")

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def run_tool(self):
        return subprocess.run([self.root / "tools" / self.tool], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True)

    def expect_fine(self):
        done = self.run_tool()
        self.assertEqual(done.returncode, 0, done.stdout)

    def expect(self, text):
        done = self.run_tool()
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertIn(text, done.stdout)


class CheckLayout(Repository):
    tool = "check_layout"

    def test_a_sound_tree_passes(self):
        self.expect_fine()

    def test_an_include_against_the_direction(self):
        self.write("mlxx/base/log.cpp", '\n#include "mlxx/core/device.h"\n')
        self.expect("mlxx/base/log.cpp:2: base may not include core")

    def test_an_include_of_the_program_from_the_library(self):
        self.write("apps/mlxx/console.h", "#pragma once\n")
        self.write("mlxx/core/device.cpp", '#include "apps/mlxx/console.h"\n')
        self.expect("only the program and its tests include apps/mlxx/console.h")

    def test_an_include_of_what_is_not_there(self):
        self.write("mlxx/core/device.cpp", '#include "mlxx/base/eror.h"\n')
        self.expect("mlxx/base/eror.h does not exist")

    def test_arrays_in_a_folder_that_knows_nothing_of_them(self):
        self.write("mlxx/base/log.cpp", "#include <mlx/array.h>\n")
        self.expect("base knows nothing of arrays")

    def test_a_cache_in_nn(self):
        self.write("mlxx/cache/cache.h", "#pragma once\n")
        self.write("mlxx/nn/attention.cpp", '#include "mlxx/cache/cache.h"\n')
        self.expect_fine()
        self.write("mlxx/cache/dense.h", "#pragma once\n")
        self.write("mlxx/nn/attention.cpp", '#include "mlxx/cache/dense.h"\n')
        self.expect("nn may include the interface of cache only")

    def test_a_folder_that_is_not_in_the_table(self):
        self.write("mlxx/stray/a.h", "#pragma once\n")
        self.expect("mlxx/stray is not in the table")

    def test_a_long_file(self):
        self.write("mlxx/base/long.cpp", "\n" * 500)
        self.expect_fine()
        self.write("mlxx/base/long.cpp", "\n" * 501)
        self.expect("501 lines, 500 are allowed")

    def test_names(self):
        self.write("mlxx/base/string_utils.h", "#pragma once\n")
        self.expect("does not say what is inside")
        (self.root / "mlxx/base/string_utils.h").unlink()
        self.write("mlxx/base/FileName.h", "#pragma once\n")
        self.expect("FileName.h is not snake_case")

    def test_a_header_without_a_guard(self):
        self.write("mlxx/base/bare.h", "int a;\n")
        self.expect("mlxx/base/bare.h: no #pragma once")

    def test_the_whole_json_library_in_a_header(self):
        self.write("mlxx/base/a.h", "#pragma once\n#include <nlohmann/json.hpp>\n")
        self.expect("headers use mlxx/base/json.h")

    def test_a_variable_that_is_not_documented(self):
        self.write("mlxx/base/log.cpp", 'environment("MLXX_KNOWN");\n')
        self.expect_fine()
        self.write("mlxx/base/log.cpp", 'environment("MLXX_SECRET");\n')
        self.expect("MLXX_SECRET")

    def test_ignored_files_do_not_count(self):
        self.write(".gitignore", "/build/\n")
        self.write("build/mlxx/Bad.h", "int a;\n")
        self.expect_fine()


class CheckDocs(Repository):
    tool = "check_docs"

    def readme(self, text):
        self.write("README.md", text)

    def test_a_sound_document_passes(self):
        self.readme("# A b: c\n[x](docs/environment.md#variables) [y](#a-b-c) `mlxx list`\n"
                    "`fail()` in `mlxx/base/error.h`, `mlxx/core/`, [z](https://example.com/q)\n")
        self.expect_fine()

    def test_links(self):
        self.readme("[x](docs/none.md)\n")
        self.expect("README.md:1: link to docs/none.md, which does not exist")
        self.readme("[x](docs/environment.md#none)\n")
        self.expect("link to #none")

    def test_paths(self):
        self.readme("see `mlxx/base/none.h`\n")
        self.expect("README.md:1: mlxx/base/none.h does not exist")

    def test_functions(self):
        self.readme("`give_up()` ends it\n")
        self.expect("give_up() is in no source file")
        self.readme("`fail()` is in `mlxx/core/device.h`\n")
        self.expect("fail() is not in mlxx/core/device.h")

    def test_verbs(self):
        self.readme("`mlxx lists`\n")
        self.expect("the program has no verb lists")
        self.readme("```\n$ build/bin/mlxx show x\n```\n")
        self.expect("README.md:2: the program has no verb show")

    def test_a_block_that_is_not_closed(self):
        self.readme("```\nx\n")
        self.expect("a ``` block is not closed")


if __name__ == "__main__":
    unittest.main()
