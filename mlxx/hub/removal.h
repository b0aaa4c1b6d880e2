#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace mlxx::hub {

// What deleting a model would delete; nothing is done yet.
struct RemovalPlan {
  std::string model;
  std::filesystem::path root;  // every path is below it
  // In the order of deletion: what refers to a file goes before the file.
  std::vector<std::filesystem::path> paths;
  uint64_t bytes = 0;  // that become free
};

// A model of the catalogue; org/repo with all its revisions; or org/repo@rev,
// which keeps the files that other revisions use. Errors: not_found, with what
// was probably meant; invalid_request for a path of the user's own.
RemovalPlan plan_removal(const std::string& model);

// Errors: invalid_request if the model is being downloaded right now, internal
// if a path cannot be deleted.
void execute_removal(const RemovalPlan& plan);

}  // namespace mlxx::hub
