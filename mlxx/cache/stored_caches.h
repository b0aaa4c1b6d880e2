#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "mlxx/cache/cache.h"

namespace mlxx::cache {

// What else is kept with the caches of a prompt, such as its tokens' digest
// and the model's name.
using CacheNotes = std::map<std::string, std::string>;

// Writes the state of all layers to one .safetensors file, whole or not at all.
// unsupported for caches that stay in memory.
void save_caches(
    const std::filesystem::path& path,
    const CacheList& caches,
    const CacheNotes& notes = {});

// Reads them into caches without tokens that the same model made with the same
// options; returns the notes. Nothing is changed unless everything fits.
// Errors: not_found; bad_file, naming what does not fit.
CacheNotes load_caches(const std::filesystem::path& path, CacheList& caches);

}  // namespace mlxx::cache
