#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tests/core/temporary_folder.h"

namespace mlxx {

// One kind of file that is not trusted.
struct MutationFormat {
  std::string name;
  // A small right file.
  std::string seed;
  // The bytes where lengths and names are; 0 for a JSON text.
  size_t head;
  // Reads a file of this kind as the program does, and uses what it gives.
  // May throw mlxx::Error and nothing else.
  std::function<void(const std::string& content)> use;
};

// What other programs packed: GGUF with all types of numbers, AWQ, GPTQ,
// compressed-tensors, files and configs.
std::vector<MutationFormat> packed_mutation_formats(
    const TemporaryFolder& folder);

// JSON lines to train on: a conversation with tools, pairs.
std::vector<MutationFormat> training_mutation_formats(
    const TemporaryFolder& folder);

// gguf, safetensors, config, tokenizer, packed_tokenizer, index and the above.
// Files are written into the folder.
std::vector<MutationFormat> mutation_formats(const TemporaryFolder& folder);

}  // namespace mlxx
