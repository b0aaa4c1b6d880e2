#pragma once

#include <filesystem>

#include "mlxx/base/json.h"
#include "mlxx/hub/checkpoint.h"

namespace mlxx::hub {

// A file that must hold a JSON object. not_found or bad_file, with a word on
// what the file seems to be instead (a Git LFS pointer, an HTML page).
Json read_json_object(const std::filesystem::path& path);

// Tokenizer and chat templates of a folder in Hugging Face layout. The first
// of these that exists gives the templates: chat_template.jinja (as "default")
// with additional_chat_templates/*.jinja, chat_template.json, the string or
// list in tokenizer_config.json. Special tokens that tokenizer_config.json
// lacks come from special_tokens_map.json.
// Errors: not_found without tokenizer.json; unsupported if there is only a
// SentencePiece model; bad_file.
TextFiles read_text_files(const std::filesystem::path& folder);
// Its parts: all but tokenizer_json, and that alone.
TextFiles read_text_beside_tokenizer(const std::filesystem::path& folder);
std::string read_tokenizer_json(const std::filesystem::path& folder);

}  // namespace mlxx::hub
