// What the three files show to the outside, and what they need: the thin ones
// nothing of MLX, and none a folder of the build.

#include <algorithm>
#include <cstdio>
#include <set>
#include <sstream>
#include <string>

#include <gtest/gtest.h>

namespace {

std::string output_of(const std::string& command) {
  std::string output;
  FILE* pipe = popen(command.c_str(), "r");
  char block[4096];
  while (size_t count = fread(block, 1, sizeof block, pipe)) {
    output.append(block, count);
  }
  return pclose(pipe) == 0 ? output : "";
}

std::set<std::string> exported(const std::string& library) {
  std::istringstream lines(output_of("nm -D --defined-only '" + library + "'"));
  std::set<std::string> names;
  std::string address;
  std::string type;
  std::string name;
  while (lines >> address >> type >> name) {
    // Version names are absolute symbols.
    if (type != "A") {
      names.insert(name.substr(0, name.find('@')));
    }
  }
  return names;
}

std::string dynamic_section(const std::string& file) {
  return output_of("readelf -d '" + file + "'");
}

TEST(ExportedSymbols, ImplementationShowsTheProgramAndOneTable) {
  EXPECT_EQ(
      exported(MLXX_IMPL_LIBRARY),
      (std::set<std::string>{"mlxx_functions", "mlxx_main"}));
}

TEST(ExportedSymbols, CLibraryShowsItsHeader) {
  auto names = exported(MLXX_C_LIBRARY);
  EXPECT_EQ(
      names,
      (std::set<std::string>{
          "mlxx_apply_chat_template",
          "mlxx_cancel_close",
          "mlxx_cancel_open",
          "mlxx_cancel_request",
          "mlxx_detokenize",
          "mlxx_embed",
          "mlxx_embedder_close",
          "mlxx_embedder_get_info",
          "mlxx_embedder_open",
          "mlxx_generate",
          "mlxx_init",
          "mlxx_last_error",
          "mlxx_libmlx_path",
          "mlxx_memory_clear_cache",
          "mlxx_memory_get",
          "mlxx_memory_reset_peak",
          "mlxx_mlx_version",
          "mlxx_model_close",
          "mlxx_model_get_info",
          "mlxx_model_open",
          "mlxx_rerank",
          "mlxx_reranker_close",
          "mlxx_reranker_open",
          "mlxx_status_name",
          "mlxx_tokenize",
          "mlxx_version"}));
}

// Programs are linked against a version, so that a later libmlxx can change a
// function and keep the old one for them.
TEST(ExportedSymbols, CLibraryHasVersions) {
  std::istringstream lines(output_of(
      "nm -D --defined-only --with-symbol-versions '" MLXX_C_LIBRARY "'"));
  std::string line;
  int functions = 0;
  int added = 0;
  while (std::getline(lines, line)) {
    if (line.find(" T ") != std::string::npos) {
      ++functions;
      bool is_new = line.find(" mlxx_embed") != std::string::npos ||
          line.find(" mlxx_rerank") != std::string::npos;
      added += is_new ? 1 : 0;
      EXPECT_TRUE(line.ends_with(is_new ? "@@MLXX_2" : "@@MLXX_1")) << line;
    }
  }
  EXPECT_EQ(functions, 26);
  EXPECT_EQ(added, 7);
}

TEST(NeededLibraries, OnlyTheImplementationNeedsMlx) {
  for (const char* thin : {MLXX_PROGRAM, MLXX_C_LIBRARY}) {
    std::string section = dynamic_section(thin);
    EXPECT_NE(section.find("libstdc++"), std::string::npos);
    EXPECT_EQ(section.find("libmlx"), section.find("libmlxx")) << section;
  }
  EXPECT_NE(
      dynamic_section(MLXX_IMPL_LIBRARY).find("[libmlx.so]"),
      std::string::npos);
}

TEST(NeededLibraries, NoRunPaths) {
  for (const char* file : {MLXX_PROGRAM, MLXX_C_LIBRARY, MLXX_IMPL_LIBRARY}) {
    std::string section = dynamic_section(file);
    EXPECT_EQ(section.find("RUNPATH"), std::string::npos) << section;
    EXPECT_EQ(section.find("RPATH"), std::string::npos) << section;
  }
}

}  // namespace
