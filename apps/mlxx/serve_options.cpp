#include "apps/mlxx/serve_options.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <filesystem>

#include <unistd.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "apps/mlxx/generate_options.h"
#include "mlxx/base/environment.h"
#include "mlxx/base/error.h"
#include "mlxx/base/mapped_file.h"
#include "mlxx/server/http_message.h"

namespace mlxx::apps {

namespace {

constexpr auto kInvalid = ErrorKind::invalid_request;
constexpr size_t kMaxKeyFile = 1 << 20;

std::vector<std::string> split_words(std::string_view text, char separator) {
  std::vector<std::string> words;
  while (!text.empty()) {
    auto end = text.find(separator);
    auto word = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    auto first = word.find_first_not_of(" \t\r");
    if (first != std::string_view::npos) {
      auto last = word.find_last_not_of(" \t\r");
      words.emplace_back(word.substr(first, last - first + 1));
    }
  }
  return words;
}

std::vector<std::string> split_all(
    const std::vector<std::string>& values,
    char separator) {
  std::vector<std::string> words;
  for (const auto& value : values) {
    for (auto& word : split_words(value, separator)) {
      words.push_back(std::move(word));
    }
  }
  return words;
}

void read_key_file(const std::string& path, std::vector<std::string>& keys) {
  MappedFile file(path);
  auto bytes = file.bytes();
  if (bytes.size() > kMaxKeyFile) {
    fail(kInvalid, path, "is no file of keys: larger than 1 MiB");
  }
  std::string_view text(
      reinterpret_cast<const char*>(bytes.data()),
      bytes.size());
  size_t before = keys.size();
  for (auto& line : split_words(text, '\n')) {
    if (!line.starts_with('#')) {
      keys.push_back(std::move(line));
    }
  }
  if (keys.size() == before) {
    fail(kInvalid, path, "holds no key: one a line is expected");
  }
}

void check_keys(const std::vector<std::string>& keys) {
  for (const auto& key : keys) {
    bool printable = std::all_of(key.begin(), key.end(), [](char c) {
      return c > ' ' && c < 0x7f;
    });
    if (key.empty() || !printable) {
      fail(
          kInvalid,
          "--api-key",
          "a key is made of printable ASCII characters without spaces");
    }
  }
}

void check_origins(const std::vector<std::string>& origins) {
  for (const auto& origin : origins) {
    auto scheme = origin.find("://");
    bool good = origin == "*" ||
        (scheme != std::string::npos && scheme > 0 &&
         origin.find('/', scheme + 3) == std::string::npos);
    if (!good) {
      fail(
          kInvalid,
          "--allowed-origins",
          "an origin looks like https://app.example, found '{}'",
          origin);
    }
  }
}

// Every verb's way of asking for a number that must be in a range.
CLI::Option* in_range(CLI::Option* option, double low, double high) {
  return option->check(CLI::Range(low, high));
}

void add_network_options(CLI::App& verb, ServeOptions& options) {
  const char* group = "Network";
  auto& http = options.http;
  verb.add_option("--host", http.host, "Address to listen on")
      ->capture_default_str()
      ->group(group);
  in_range(
      verb.add_option(
          "--port",
          http.port,
          "Port; 0 takes any free one, -1 none"),
      -1,
      65535)
      ->capture_default_str()
      ->group(group);
  verb.add_option(
          "--unix-socket",
          http.unix_socket,
          "Listen on this socket file too; only its owner may use it")
      ->type_name("PATH")
      ->group(group);
  verb.add_option(
          "--ssl-certfile",
          http.tls_certificate_file,
          "Certificates for TLS")
      ->type_name("PEM")
      ->group(group);
  verb.add_option("--ssl-keyfile", http.tls_key_file, "Their private key")
      ->type_name("PEM")
      ->group(group);
  verb.add_option(
          "--api-key",
          options.access.api_keys,
          "A key that requests must carry; may be repeated. Also MLXX_API_KEY")
      ->type_name("KEY")
      ->allow_extra_args(false)
      ->group(group);
  verb.add_option(
          "--api-key-file",
          options.api_key_files,
          "A file with a key a line")
      ->type_name("FILE")
      ->allow_extra_args(false)
      ->group(group);
  verb.add_option(
          "--allowed-hosts",
          options.access.allowed_hosts,
          "Names by which this server is reached, separated by commas")
      ->type_name("HOSTS")
      ->allow_extra_args(false)
      ->group(group);
  verb.add_option(
          "--allowed-origins",
          options.access.allowed_origins,
          "Origins of web pages that may use it, separated by commas; * is all")
      ->type_name("ORIGINS")
      ->allow_extra_args(false)
      ->group(group);
  in_range(
      verb.add_option(
          "--max-connections",
          http.limits.max_connections,
          "Connections at the same time"),
      1,
      1 << 20)
      ->capture_default_str()
      ->group(group);
  in_range(
      verb.add_option(
          "--max-connections-per-address",
          http.limits.max_connections_per_address,
          "Of those, from one address"),
      1,
      1 << 20)
      ->capture_default_str()
      ->group(group);
  in_range(
      verb.add_option(
          "--max-body-bytes",
          http.limits.max_body_bytes,
          "Largest body of a request"),
      1024,
      1 << 30)
      ->capture_default_str()
      ->group(group);
}

void add_model_options(CLI::App& verb, ServeOptions& options) {
  const char* group = "Models";
  verb.add_option(
          "-m,--model",
          options.models,
          "Model to serve, by the name that requests use if NAME= is before "
          "it; may be repeated")
      ->type_name("[NAME=]MODEL")
      ->allow_extra_args(false)
      ->group(group);
  verb.add_option(
          "--models-dir",
          options.models_dir,
          "Serve every model in this folder")
      ->type_name("FOLDER")
      ->group(group);
  verb.add_option(
          "--adapter-path",
          options.adapters,
          "Adapter of the first model; may be repeated. Requests that name "
          "none get the first one")
      ->type_name("[NAME=]FOLDER")
      ->allow_extra_args(false)
      ->group(group);
  verb.add_option(
          "--adapters-dir",
          options.adapters_dir,
          "Folder of adapters that requests may mount")
      ->type_name("FOLDER")
      ->group(group);
  verb.add_flag(
          "--allow-downloads",
          options.allow_downloads,
          "A request may name a model that has to be downloaded first")
      ->group(group);
  in_range(
      verb.add_option(
          "--idle-unload",
          options.idle_unload_minutes,
          "Minutes without a request after which a model is unloaded; 0 never"),
      0,
      1e6)
      ->type_name("MINUTES")
      ->capture_default_str()
      ->group(group);
  verb.add_option(
          "--chat-template",
          options.chat_template,
          "Chat template, or a file with it, in place of the model's")
      ->type_name("TEMPLATE")
      ->group(group);
  verb.add_option(
          "--chat-template-args",
          options.chat_template_args,
          "Variables for the chat template, as a JSON object")
      ->type_name("JSON")
      ->group(group);
  verb.add_flag(
          "--use-default-chat-template",
          options.use_default_chat_template,
          "Taken for mlx_lm.server's sake: the model's template is the default")
      ->group(group);
}

void add_default_options(CLI::App& verb, ServeOptions& options) {
  const char* group = "Defaults of requests";
  auto& sampling = options.text.sampling;
  in_range(
      verb.add_option("--temp", sampling.temperature, "Temperature"),
      0,
      100)
      ->type_name("T")
      ->group(group);
  in_range(verb.add_option("--top-p", sampling.top_p, "Nucleus"), 0, 1)
      ->type_name("P")
      ->group(group);
  in_range(
      verb.add_option("--top-k", sampling.top_k, "Likeliest tokens; 0 is off"),
      0,
      1 << 30)
      ->type_name("K")
      ->group(group);
  in_range(
      verb.add_option("--min-p", sampling.min_p, "Least relative probability"),
      0,
      1)
      ->type_name("P")
      ->group(group);
  in_range(
      verb.add_option(
          "--max-tokens",
          options.limits.default_max_tokens,
          "Tokens of an answer that asks for no number"),
      1,
      1 << 30)
      ->capture_default_str()
      ->group(group);
  verb.add_flag(
          "--strict",
          options.limits.strict,
          "Refuse requests with unknown fields instead of ignoring those")
      ->group(group);
}

void add_engine_options(CLI::App& verb, ServeOptions& options) {
  const char* group = "Engine";
  in_range(
      verb.add_option(
          "--decode-concurrency",
          options.engine.max_rows,
          "Answers that are written together"),
      1,
      4096)
      ->capture_default_str()
      ->group(group);
  in_range(
      verb.add_option(
          "--prefill-step-size",
          options.prefill_step,
          "Tokens of prompts that are read between two steps of answers "
          "[512; on NVIDIA GPUs 2048]"),
      1,
      1 << 20)
      ->group(group);
  in_range(
      verb.add_option(
          "--max-queue",
          options.engine.max_queue,
          "Requests that may wait; more are told to come back (429)"),
      0,
      1 << 20)
      ->capture_default_str()
      ->group(group);
  verb.add_option_function<std::string>(
          "--memory-budget",
          [&options](const std::string& text) {
            options.memory_budget = parse_bytes(text, "--memory-budget");
          },
          "Memory for models and answers together, such as 12GB")
      ->type_name("BYTES")
      ->group(group);
  verb.add_option_function<std::string>(
          "--prompt-cache-bytes",
          [&options](const std::string& text) {
            options.prompt_cache_bytes =
                parse_bytes(text, "--prompt-cache-bytes");
          },
          "Memory for states of earlier prompts; 0 keeps none")
      ->type_name("BYTES")
      ->group(group);
  verb.add_option(
          "--prompt-cache-dir",
          options.prompt_cache_dir,
          "Keep them in this folder over a restart")
      ->type_name("FOLDER")
      ->group(group);
  verb.add_option_function<std::string>(
          "--prompt-cache-disk-bytes",
          [&options](const std::string& text) {
            options.prompt_cache_disk_bytes =
                parse_bytes(text, "--prompt-cache-disk-bytes");
          },
          "Most that may be in that folder; 8 GiB if it is not given")
      ->type_name("BYTES")
      ->group(group);
  verb.add_option(
          "--response-store",
          options.response_store,
          "File for the responses that clients ask to store; without it they "
          "are gone with the server")
      ->type_name("FILE")
      ->group(group);
  verb.add_option_function<std::string>(
          "--response-store-bytes",
          [&options](const std::string& text) {
            options.response_store_bytes =
                parse_bytes(text, "--response-store-bytes");
          },
          "Most that stored responses may take; 256 MiB if it is not given")
      ->type_name("BYTES")
      ->group(group);
  in_range(
      verb.add_option(
          "--response-store-days",
          options.response_store_days,
          "Days after its last use for which a response is kept"),
      0,
      36500)
      ->type_name("DAYS")
      ->group(group);
  verb.add_option("--device", options.device, "Where to compute: cpu or gpu")
      ->check(CLI::IsMember({"cpu", "gpu"}))
      ->group(group);
  in_range(
      verb.add_option(
          "--drain-timeout",
          options.drain_seconds,
          "Seconds that running answers have once the server is told to stop"),
      0,
      86400)
      ->type_name("SECONDS")
      ->capture_default_str()
      ->group(group);
  verb.add_flag(
          "--supervise",
          options.supervise,
          "Run the engine in a process of its own; when that dies, start it "
          "again")
      ->group(group);
  // How that process is told what it is; not for people.
  verb.add_flag("--as-engine", options.is_engine)->group("");
}

}  // namespace

size_t parse_bytes(const std::string& text, const char* place) {
  struct Unit {
    const char* name;
    double bytes;
  };
  constexpr std::array<Unit, 10> kUnits = {
      {{"", 1},
       {"b", 1},
       {"k", 1e3},
       {"kb", 1e3},
       {"mb", 1e6},
       {"gb", 1e9},
       {"tb", 1e12},
       {"kib", 1024.0},
       {"mib", 1048576.0},
       {"gib", 1073741824.0}}};
  double number = 0;
  const char* end = text.data() + text.size();
  auto [stop, error] = std::from_chars(text.data(), end, number);
  std::string unit = server::to_lower(std::string_view(stop, end));
  while (unit.starts_with(' ')) {
    unit.erase(0, 1);
  }
  for (const auto& known : kUnits) {
    double bytes = number * known.bytes;
    if (error == std::errc() && unit == known.name && std::isfinite(bytes) &&
        bytes >= 0 && bytes < 1e15) {
      return static_cast<size_t>(bytes);
    }
  }
  fail(
      kInvalid,
      place,
      "takes a size such as 800MB, 12GB or 4GiB, found '{}'",
      text);
}

void add_serve_options(CLI::App& verb, ServeOptions& options) {
  add_model_options(verb, options);
  add_network_options(verb, options);
  add_default_options(verb, options);
  add_engine_options(verb, options);
  verb.add_option("--log-format", options.log_format, "Lines of the access log")
      ->check(CLI::IsMember({"text", "json", "off"}))
      ->capture_default_str()
      ->group("Other");
}

void finish_serve_options(ServeOptions& options) {
  if (options.models.empty() && !options.models_dir) {
    options.models.emplace_back(hub::kDefaultModel);
  }
  auto& access = options.access;
  for (const auto& path : options.api_key_files) {
    read_key_file(path, access.api_keys);
  }
  if (auto key = environment("MLXX_API_KEY")) {
    access.api_keys.push_back(*key);
  }
  check_keys(access.api_keys);
  access.allowed_hosts = split_all(access.allowed_hosts, ',');
  access.allowed_origins = split_all(access.allowed_origins, ',');
  check_origins(access.allowed_origins);
  access.host = options.http.host;
  std::array<char, 256> name{};
  if (gethostname(name.data(), name.size() - 1) == 0 && name[0] != '\0') {
    // Not a name that others can make point here.
    access.allowed_hosts.emplace_back(name.data());
  }
  if (options.chat_template) {
    options.text.chat_template = read_chat_template(*options.chat_template);
  }
  try {
    auto variables =
        parse_ordered_json(options.chat_template_args, "--chat-template-args");
    if (!variables.is_object()) {
      fail(kInvalid, "--chat-template-args", "must be a JSON object");
    }
  } catch (const Error& error) {
    throw Error(kInvalid, error.what());
  }
}

}  // namespace mlxx::apps
