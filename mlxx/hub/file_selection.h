#pragma once

#include <string>
#include <vector>

#include "mlxx/hub/hub_api.h"
#include "mlxx/hub/model_name.h"

namespace mlxx::hub {

// Which files of a repository make the model.
struct FileChoice {
  // Patterns with * ? [...] where * also matches '/', as huggingface_hub's
  // allow_patterns. Empty: what mlxx needs.
  std::vector<std::string> include;
};

// True for the kinds of files that only hold data: safetensors, gguf, json,
// jinja, txt, model, tiktoken. Pickles and code may run what they say.
bool is_data_file(const std::string& name);

// The files to get, sorted: the folder's weights in safetensors with configs,
// tokenizer and templates, and the modules of sentence-transformers; or one
// GGUF file with all its parts (name.file, or the only one). Errors: not_found
// (no such file, no weights at all), unsupported (weights only as pickles),
// invalid_request (several GGUF files and none chosen; a pattern or file that
// is not data).
std::vector<RepoFile> choose_files(
    const RepoListing& listing,
    const RepoName& name,
    const FileChoice& choice);

// Of the names of GGUF files in a folder, the one that `wanted` means: its
// name, a quantization in its name, or the only one if it is empty. The first
// part if it is in parts. Errors as above; `place` is what they name.
std::string choose_gguf(
    const std::vector<std::string>& names,
    const std::string& wanted,
    const std::string& place);

}  // namespace mlxx::hub
