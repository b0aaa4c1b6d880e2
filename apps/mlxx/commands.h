#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace mlxx::apps {

// What the verbs share during one run of the program.
struct CommandContext {
  // When the process started, for timings that a user would also measure.
  std::chrono::steady_clock::time_point process_start;
  // The command line after the program's name.
  std::vector<std::string> arguments;
  // What the verb on the command line does, set by its CLI11 callback (use
  // on_run). Returns the exit code; what it throws becomes an error line and
  // an exit code in run_program().
  std::function<int()> body;
};

// Makes `body` what `verb` does once the whole command line has been parsed.
void on_run(CLI::App* verb, CommandContext& context, std::function<int()> body);

// One per verb. Each adds its subcommand with options, help and an example
// (the footer) to `app`, and keeps whatever it parses into alive itself.
// `context` outlives the app.
void add_generate_command(CLI::App& app, CommandContext& context);
void add_chat_command(CLI::App& app, CommandContext& context);
void add_pull_command(CLI::App& app, CommandContext& context);
void add_list_command(CLI::App& app, CommandContext& context);
void add_rm_command(CLI::App& app, CommandContext& context);
void add_show_command(CLI::App& app, CommandContext& context);
void add_fit_command(CLI::App& app, CommandContext& context);
void add_doctor_command(CLI::App& app, CommandContext& context);
void add_runtime_command(CLI::App& app, CommandContext& context);
void add_architectures_command(CLI::App& app, CommandContext& context);
void add_logits_command(CLI::App& app, CommandContext& context);
void add_embed_command(CLI::App& app, CommandContext& context);
void add_eval_command(CLI::App& app, CommandContext& context);
void add_rerank_command(CLI::App& app, CommandContext& context);
void add_bench_command(CLI::App& app, CommandContext& context);
void add_serve_command(CLI::App& app, CommandContext& context);
void add_train_command(CLI::App& app, CommandContext& context);
void add_fuse_command(CLI::App& app, CommandContext& context);
void add_completions_command(CLI::App& app, CommandContext& context);

}  // namespace mlxx::apps
