#include <memory>
#include <string>

#include <CLI/CLI.hpp>

#include "apps/mlxx/chat_session.h"
#include "apps/mlxx/commands.h"
#include "apps/mlxx/console.h"
#include "apps/mlxx/exit_codes.h"
#include "apps/mlxx/generate_options.h"
#include "apps/mlxx/generate_report.h"
#include "apps/mlxx/interrupt.h"
#include "apps/mlxx/line_editor.h"
#include "apps/mlxx/model_adapter.h"
#include "apps/mlxx/model_loading.h"
#include "mlxx/base/closest_match.h"
#include "mlxx/base/error.h"

namespace mlxx::apps {

namespace {

struct ChatOptions {
  AnswerOptions answer;
  bool quiet = false;
};

// One run of the verb: reads lines, answers, obeys commands.
class Chat {
 public:
  Chat(
      const ChatOptions& options,
      const generate::Pipeline& pipeline,
      InterruptScope& interrupt)
      : options_(options),
        session_(pipeline, options.answer),
        interrupt_(interrupt) {}

  int run() {
    if (editor_.is_interactive() && !options_.quiet) {
      print_error(
          "Chatting with " + options_.answer.model +
          ". /help shows the commands, Ctrl-D leaves.\n");
    }
    while (true) {
      InputLine line = editor_.read_line("> ");
      if (line.status == LineStatus::interrupted) {
        if (!editor_.is_interactive()) {
          return kExitInterrupted;
        }
        interrupt_.clear();
        print_error("\n(Ctrl-D or /exit leaves)\n");
        continue;
      }
      if (line.status == LineStatus::end_of_input || !obey(line.text)) {
        break;
      }
      if (failure_ != kExitSuccess && !editor_.is_interactive()) {
        return failure_;
      }
    }
    if (editor_.is_interactive()) {
      print_error("\n");
    }
    return kExitSuccess;
  }

 private:
  // False to leave.
  bool obey(const std::string& text) {
    ChatLine line = parse_chat_line(text);
    switch (line.kind) {
      case ChatLine::Kind::message:
        answer(line.text);
        return true;
      case ChatLine::Kind::reset:
        session_.reset();
        note("The conversation is forgotten.");
        return true;
      case ChatLine::Kind::system:
        set_system_prompt(line.text);
        return true;
      case ChatLine::Kind::exit:
        return false;
      case ChatLine::Kind::help:
        print_error(kChatHelp);
        return true;
      case ChatLine::Kind::empty:
        return true;
      case ChatLine::Kind::unknown:
        refuse_command(line.text);
        return true;
    }
    return true;
  }

  void note(const std::string& text) {
    if (!options_.quiet) {
      print_error(colored(Stream::err, Color::dim, text) + "\n");
    }
  }

  void set_system_prompt(const std::string& text) {
    try {
      require_utf8("/system", text);
    } catch (const Error& error) {
      report(error);
      return;
    }
    session_.set_system_prompt(
        text.empty() ? std::nullopt : std::optional<std::string>(text));
    note("The system message is set, the conversation forgotten.");
  }

  void refuse_command(const std::string& command) {
    auto meant =
        closest_match(command, {"/reset", "/system", "/exit", "/help"});
    report(Error(
        ErrorKind::invalid_request,
        "[chat] there is no command " + command +
            (meant ? ", did you mean " + *meant + "?" : ", see /help")));
  }

  void report(const Error& error) {
    print_error_line(error.what());
    failure_ = exit_code(error.kind());
  }

  void answer(const std::string& message) {
    bool ends_in_newline = true;
    bool is_empty = true;
    auto on_delta = [&](const generate::Delta& delta) {
      if (!delta.text.empty()) {
        print(for_display(Stream::out, delta.text));
        ends_in_newline = delta.text.back() == '\n';
        is_empty = false;
      }
      return true;
    };
    auto generate_options = options_.answer.generate;
    generate_options.is_cancelled = [this] {
      return interrupt_.is_interrupted();
    };
    try {
      require_utf8("stdin", message);
      auto result = session_.answer(message, generate_options, on_delta);
      if (!ends_in_newline || is_empty) {
        print("\n");
      }
      note(answer_summary(result, generate_options.max_tokens));
      bool stopped = result.finish_reason == generate::FinishReason::cancelled;
      if (stopped && !editor_.is_interactive()) {
        failure_ = kExitInterrupted;
      }
    } catch (const Error& error) {
      if (!ends_in_newline) {
        print("\n");
      }
      report(error);
    }
    // The next line may be waited for.
    interrupt_.clear();
  }

  const ChatOptions& options_;
  LineEditor editor_;
  ChatSession session_;
  InterruptScope& interrupt_;
  int failure_ = kExitSuccess;
};

int run(ChatOptions options) {
  finish_answer_options(options.answer);
  InterruptScope interrupt;
  auto pipeline = load_for_answers(options.answer, interrupt);
  ModelAdapter adapter(
      pipeline.model,
      options.answer.adapter_path,
      options.answer.kernels.selection());
  options.answer.generate.per_layer = adapter.per_layer();
  auto adapter_rows = adapter.rows(1);
  nn::AdapterScope scope(adapter_rows.get());
  return Chat(options, pipeline, interrupt).run();
}

}  // namespace

void add_chat_command(CLI::App& app, CommandContext& context) {
  auto options = std::make_shared<ChatOptions>();
  CLI::App* verb = app.add_subcommand(
      "chat",
      "Talk with a model; from a pipe each line is one message");
  add_answer_options(*verb, options->answer);
  verb->add_flag("--quiet,-q", options->quiet, "Nothing but answers and errors")
      ->group("Answer");
  verb->footer(
      "Commands while chatting:\n" + std::string(kChatHelp) +
      "\nExamples:\n"
      "  mlxx chat\n"
      "  mlxx chat -m org/repo --system-prompt \"Answer in one sentence.\"\n"
      "  printf 'Hi\\nWhat did I say?\\n' | mlxx chat --quiet");
  on_run(verb, context, [options] { return run(*options); });
}

}  // namespace mlxx::apps
