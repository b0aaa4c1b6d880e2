#pragma once

#include <chrono>
#include <filesystem>
#include <string>

#include "mlxx/hub/http_client.h"

namespace mlxx::hub {

// Which hub, on whose behalf, and where its files are kept: what
// huggingface_hub reads from the same variables.
struct HubSettings {
  std::string endpoint = "https://huggingface.co";  // no slash at the end
  std::string token = {};                           // "" for nobody's
  std::filesystem::path cache = {};  // holds models--org--repo folders
  bool offline = false;
  HttpTimeouts timeouts = {};
  // Attempts that bring nothing before a download gives up, and how long it
  // waits after the first; the wait doubles each time.
  int max_attempts = 6;
  std::chrono::milliseconds first_wait{1000};
  // A server that asks for a longer pause ends the download.
  std::chrono::seconds longest_wait{60};
};

// HF_ENDPOINT, HF_TOKEN (HUGGING_FACE_HUB_TOKEN, or the file HF_TOKEN_PATH,
// by default HF_HOME/token; none under HF_HUB_DISABLE_IMPLICIT_TOKEN),
// HF_HUB_CACHE (HUGGINGFACE_HUB_CACHE, HF_HOME/hub), HF_HUB_OFFLINE
// (TRANSFORMERS_OFFLINE) and HF_HUB_DOWNLOAD_TIMEOUT in seconds. HF_HOME is
// XDG_CACHE_HOME/huggingface or ~/.cache/huggingface. invalid_request, naming
// the variable, for a value that cannot be.
HubSettings hub_settings();

// The cache's folder alone, which needs nothing else to be right.
std::filesystem::path hugging_face_cache();

}  // namespace mlxx::hub
