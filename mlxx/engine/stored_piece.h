#pragma once

#include <filesystem>
#include <string>

#include "mlxx/engine/prefix_store.h"

// One piece as a file; sees nothing of a store.
namespace mlxx::engine {

// The bytes of a .safetensors file with the piece and, under "sha256", a
// checksum of notes, names, dtypes, shapes and numbers.
std::string piece_head(const StoredPiece& piece);

// Errors: not_found; bad_file, also if the checksum is another one.
LoadedPiece load_piece(const std::filesystem::path& path);

}  // namespace mlxx::engine
