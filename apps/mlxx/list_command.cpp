#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "apps/mlxx/commands.h"
#include "apps/mlxx/console.h"
#include "apps/mlxx/exit_codes.h"
#include "mlxx/base/json.h"
#include "mlxx/base/utf8.h"
#include "mlxx/hub/cached_models.h"
#include "mlxx/hub/catalogue.h"
#include "mlxx/hub/progress_meter.h"

namespace mlxx::apps {

namespace {

constexpr size_t kShownCommit = 8;

int list_as_json(const std::vector<hub::CachedModel>& models) {
  OrderedJson out = OrderedJson::array();
  for (const hub::CachedModel& model : models) {
    out.push_back(
        {{"name", model.name},
         {"revision", model.revision},
         {"refs", model.refs},
         {"format", model.format},
         {"path", model.path.string()},
         {"bytes", model.bytes},
         {"whole", model.is_whole}});
  }
  print(out.dump(2, ' ', false, OrderedJson::error_handler_t::replace) + "\n");
  return kExitSuccess;
}

std::string revision_of(const hub::CachedModel& model) {
  if (model.revision.empty()) {
    return "-";
  }
  std::string commit = model.revision.substr(0, kShownCommit);
  return model.refs.empty()
      ? commit
      : fmt::format("{} ({})", commit, fmt::join(model.refs, ", "));
}

int list_models(bool json) {
  auto models = hub::cached_models();
  if (json) {
    return list_as_json(models);
  }
  std::vector<std::vector<std::string>> rows;
  for (const hub::CachedModel& model : models) {
    rows.push_back(
        {escape_line(model.name),
         escape_line(revision_of(model)),
         model.format,
         hub::format_bytes(model.bytes),
         escape_line(model.path.string()) +
             (model.is_whole ? "" : "  (damaged: pull it again)")});
  }
  if (!rows.empty()) {
    rows.insert(rows.begin(), {"NAME", "REVISION", "FORMAT", "SIZE", "PATH"});
  }
  std::string text;
  for (const auto& row : rows) {
    for (size_t column = 0; column + 1 < row.size(); ++column) {
      size_t width = 0;
      for (const auto& other : rows) {
        width = std::max(width, other[column].size());
      }
      text += fmt::format("{:<{}}  ", row[column], width);
    }
    text += row.back() + "\n";
  }
  for (const hub::CatalogueEntry& entry : hub::catalogue()) {
    if (hub::catalogue_state(entry) == hub::CatalogueState::absent) {
      text += fmt::format(
          "Not here yet: {} ({}, {}, {}), get it with: mlxx pull {}\n",
          entry.name,
          entry.description,
          hub::format_bytes(entry.member_bytes),
          entry.licence,
          entry.name);
    }
  }
  print(text);
  return kExitSuccess;
}

}  // namespace

void add_list_command(CLI::App& app, CommandContext& context) {
  auto json = std::make_shared<bool>(false);
  CLI::App* verb =
      app.add_subcommand("list", "List the models on this machine");
  verb->add_flag("--json", *json, "Print a JSON list");
  verb->footer(
      "Shows the catalogue's models and those in Hugging Face's cache.\n"
      "Example: mlxx list --json");
  on_run(verb, context, [json] { return list_models(*json); });
}

}  // namespace mlxx::apps
