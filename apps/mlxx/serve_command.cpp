#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <csignal>
#include <filesystem>
#include <memory>

#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "apps/mlxx/commands.h"
#include "apps/mlxx/console.h"
#include "apps/mlxx/engine_process.h"
#include "apps/mlxx/exit_codes.h"
#include "apps/mlxx/serve_log.h"
#include "apps/mlxx/serve_options.h"
#include "apps/mlxx/stop_signals.h"
#include "mlxx/api/response_store.h"
#include "mlxx/base/error.h"
#include "mlxx/base/log.h"
#include "mlxx/core/device.h"
#include "mlxx/core/mlx.h"
#include "mlxx/engine/model_list.h"
#include "mlxx/engine/model_pool.h"
#include "mlxx/hub/model_name.h"
#include "mlxx/hub/pull.h"
#include "mlxx/hub/resolve.h"
#include "mlxx/server/api_server.h"
#include "mlxx/server/engine_host.h"
#include "mlxx/server/http_server.h"
#include "mlxx/server/remote_engine.h"
#include "mlxx/text/tokenizer_cache.h"

namespace mlxx::apps {

namespace {

using std::chrono::milliseconds;

// By the rules of `mlxx pull`, on the thread of the request that wants it.
std::filesystem::path download(const std::string& name) {
  log_info("[{}] downloading", name);
  if (const auto* entry = hub::find_in_catalogue(name)) {
    return hub::pull_from_catalogue(*entry, {}).path;
  }
  auto repo = hub::parse_repo_name(name);
  if (!repo) {
    fail(ErrorKind::not_found, "model", "there is no model of that name");
  }
  hub::pull_from_hub(*repo, {}, hub::hub_settings());
  return hub::resolve_model(name);
}

std::shared_ptr<engine::ModelList> make_list(const ServeOptions& options) {
  engine::ModelListOptions list;
  for (const auto& model : options.models) {
    list.models.push_back(engine::named_model(model));
  }
  if (options.models_dir) {
    auto found = engine::models_in_folder(*options.models_dir);
    list.models.insert(list.models.end(), found.begin(), found.end());
  }
  list.text = options.text;
  list.text.tokenizer_cache = text::TokenizerCache::from_environment();
  if (options.allow_downloads) {
    list.download = download;
  }
  return std::make_shared<engine::ModelList>(std::move(list));
}

void choose_device(const std::string& device) {
  if (device.empty()) {
    return;
  }
  mx::Device wanted(device == "gpu" ? mx::Device::gpu : mx::Device::cpu);
  if (!mx::is_available(wanted)) {
    fail(ErrorKind::unsupported, "--device", "this MLX has no {}", device);
  }
  mx::set_default_device(wanted);
}

struct NamedAdapter {
  std::string name;
  std::string folder;
};

NamedAdapter named_adapter(const std::string& argument) {
  auto equals = argument.find('=');
  if (equals != std::string::npos && equals > 0) {
    return {argument.substr(0, equals), argument.substr(equals + 1)};
  }
  auto path = std::filesystem::path(argument).lexically_normal();
  auto name =
      path.has_filename() ? path.filename() : path.parent_path().filename();
  return {name.string(), argument};
}

// Where a pass through the layers takes about as long for 1,000 tokens as for
// one.
constexpr int kGpuPrefillStep = 2048;

std::shared_ptr<server::EnginePort> make_engine(
    const ServeOptions& options,
    std::shared_ptr<engine::ModelList> list) {
  engine::ModelPoolOptions pool;
  pool.memory_budget = options.memory_budget;
  engine::EngineOptions engine = options.engine;
  engine.prefill_step = options.prefill_step.value_or(
      backend() == Backend::cuda ? kGpuPrefillStep : engine.prefill_step);
  pool.prefill_step = engine.prefill_step;
  pool.idle_unload = std::chrono::seconds(
      static_cast<int64_t>(options.idle_unload_minutes * 60));
  if (options.prompt_cache_bytes) {
    pool.prefixes.max_bytes = *options.prompt_cache_bytes;
  }
  if (options.prompt_cache_dir) {
    pool.prefixes.folder = *options.prompt_cache_dir;
  }
  if (options.prompt_cache_disk_bytes) {
    pool.prefixes.max_disk_bytes = *options.prompt_cache_disk_bytes;
  }
  if (options.adapters_dir) {
    pool.adapters_folder = *options.adapters_dir;
  }
  // Of a whole folder, each when it is asked for.
  std::vector<std::string> named;
  for (const auto& model : list->list()) {
    if (named.size() < options.models.size()) {
      named.push_back(model.name);
    }
  }
  return server::make_local_engine(
      engine,
      [pool, list, device = options.device, adapters = options.adapters] {
        choose_device(device);
        auto source = std::make_unique<engine::ModelPool>(list, pool);
        for (const auto& argument : adapters) {
          auto adapter = named_adapter(argument);
          source->add_adapter(
              list->list().front().name,
              adapter.name,
              adapter.folder);
        }
        return source;
      },
      named);
}

// What the process does that --supervise starts: it has the models, and ends
// when the one that started it is gone. Signals to stop are for that one, which
// lets running answers end first.
int run_engine(const ServeOptions& options) {
  std::signal(SIGINT, SIG_IGN);
  std::signal(SIGTERM, SIG_IGN);
  server::EngineChannel channel(kEngineDescriptor);
  auto engine = make_engine(options, make_list(options));
  server::host_engine(channel, *engine);
  return kExitSuccess;
}

std::shared_ptr<server::EnginePort> start_supervised_engine(
    std::vector<std::string> arguments,
    std::shared_ptr<engine::ModelList> list) {
  arguments.emplace_back("--as-engine");
  server::RemoteEngineOptions remote;
  remote.start = [arguments] { return start_engine_process(arguments); };
  remote.on_loaded = [list](const std::vector<std::string>& loaded) {
    for (const auto& model : list->list()) {
      list->set_loaded(
          model.name,
          std::ranges::find(loaded, model.name) != loaded.end());
    }
  };
  return server::make_remote_engine(std::move(remote));
}

std::shared_ptr<api::ResponseStore> make_store(const ServeOptions& options) {
  api::ResponseStoreOptions store;
  if (options.response_store) {
    store.file = *options.response_store;
  }
  if (options.response_store_bytes) {
    store.max_bytes = *options.response_store_bytes;
  }
  store.ttl_seconds = std::llround(options.response_store_days * 86400);
  return std::make_shared<api::ResponseStore>(store);
}

void warn_of_open_doors(const ServeOptions& options) {
  bool has_keys = !options.access.api_keys.empty();
  if (options.http.port >= 0 &&
      !server::is_loopback(server::host_of_authority(options.http.host)) &&
      !has_keys) {
    print_error(fmt::format(
        "mlxx: warning: everybody who reaches {} may use this server; "
        "--api-key asks for a key\n",
        options.http.host));
  }
  bool any_origin = false;
  for (const auto& origin : options.access.allowed_origins) {
    any_origin = any_origin || origin == "*";
  }
  if (any_origin && !has_keys) {
    print_error(
        "mlxx: warning: every web page may use this server; name the origins "
        "or ask for a key\n");
  }
}

server::AccessLog make_log(const std::string& format) {
  if (format == "off") {
    return {};
  }
  return [format](const server::AccessRecord& record) {
    auto now = std::chrono::duration_cast<milliseconds>(
        std::chrono::system_clock::now().time_since_epoch());
    auto line = access_line(format, record, now.count());
    line += '\n';
    print_error(line);
  };
}

int run(ServeOptions options, const std::vector<std::string>& arguments) {
  finish_serve_options(options);
  if (options.is_engine) {
    return run_engine(options);
  }
  StopSignals signals;
  auto list = make_list(options);
  auto services = std::make_shared<server::Services>();
  services->texts = list;
  services->store = make_store(options);
  services->limits = options.limits;
  if (!options.adapters.empty()) {
    services->default_adapter = named_adapter(options.adapters.front()).name;
  }
  services->template_variables = std::make_shared<OrderedJson>(
      parse_ordered_json(options.chat_template_args, "--chat-template-args"));
  services->max_unsent_bytes = options.http.limits.max_unsent_bytes;
  services->engine = options.supervise
      ? start_supervised_engine(arguments, list)
      : make_engine(options, list);
  std::atomic<server::HttpServer*> serving{nullptr};
  services->connections = [&serving] {
    auto* http = serving.load();
    return http ? http->connections() : 0;
  };
  server::ApiServer api(services, options.access, make_log(options.log_format));
  server::HttpServer http(options.http, api);
  serving = &http;
  warn_of_open_doors(options);
  for (const auto& address : http.addresses()) {
    print(fmt::format("listening on {}\n", address));
  }

  int code = kExitSuccess;
  while (!signals.wait(milliseconds(500))) {
    auto state = services->engine->state();
    // Without its model there is nothing to wait for.
    if (state.is_final) {
      print_error_line(state.problem);
      code = kExitFailure;
      break;
    }
  }
  log_info("[serve] stopping");
  http.stop_accepting();
  services->engine->drain(
      milliseconds(static_cast<int64_t>(options.drain_seconds * 1000)));
  http.close(milliseconds(2000));
  return code;
}

}  // namespace

void add_serve_command(CLI::App& app, CommandContext& context) {
  auto options = std::make_shared<ServeOptions>();
  CLI::App* verb = app.add_subcommand(
      "serve",
      "Serve models over HTTP: OpenAI's and Anthropic's APIs");
  add_serve_options(*verb, *options);
  verb->footer(
      "Examples:\n"
      "  mlxx serve\n"
      "  mlxx serve -m org/repo --port 9000 --api-key SECRET\n"
      "  mlxx serve -m small=smollm2 -m large=/models/large --memory-budget "
      "24GB");
  on_run(verb, context, [options, &context] {
    return run(*options, context.arguments);
  });
}

}  // namespace mlxx::apps
