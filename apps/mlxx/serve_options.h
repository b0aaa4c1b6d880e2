#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "mlxx/api/answer.h"
#include "mlxx/engine/engine.h"
#include "mlxx/engine/model_files.h"
#include "mlxx/server/access_rules.h"
#include "mlxx/server/http_options.h"

namespace CLI {
class App;
}

namespace mlxx::apps {

// What `mlxx serve` is told. Names are mlx_lm.server's where it has them.
struct ServeOptions {
  std::vector<std::string> models;  // MODEL or NAME=MODEL
  std::optional<std::string> models_dir;
  std::vector<std::string> adapters;  // FOLDER or NAME=FOLDER
  std::optional<std::string> adapters_dir;
  bool allow_downloads = false;
  double idle_unload_minutes = 0;  // 0: never

  server::HttpOptions http;
  server::AccessOptions access;
  std::vector<std::string> api_key_files;
  std::string log_format = "text";

  std::optional<int> prefill_step;  // of the engine
  engine::EngineOptions engine;
  engine::ModelTextOptions text;
  std::optional<std::string> chat_template;
  std::string chat_template_args = "{}";
  bool use_default_chat_template = false;
  api::Limits limits;

  std::optional<size_t> memory_budget;
  std::optional<size_t> prompt_cache_bytes;
  std::optional<std::string> prompt_cache_dir;
  std::optional<size_t> prompt_cache_disk_bytes;
  std::optional<std::string> response_store;
  std::optional<size_t> response_store_bytes;
  double response_store_days = 30;
  std::string device;
  double drain_seconds = 30;
  bool supervise = false;
  bool is_engine = false;  // the process that --supervise starts
};

void add_serve_options(CLI::App& verb, ServeOptions& options);

// What the command line leaves to files and the environment: keys, hosts,
// templates. invalid_request, not_found and bad_file name the option.
void finish_serve_options(ServeOptions& options);

// "2GB", "512MiB", "1000000". invalid_request names `place`.
size_t parse_bytes(const std::string& text, const char* place);

}  // namespace mlxx::apps
