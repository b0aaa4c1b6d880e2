#include "mlxx/base/error.h"
#include "mlxx/data/batch_text.h"
#include "mlxx/data/training_data.h"
#include "mlxx/text/chat_template.h"
#include "tests/generate/tiny_tokenizer.h"
#include "tests/mutation/formats.h"

namespace mlxx {
namespace {

constexpr const char* kChat =
    R"({"messages": [{"role": "system", "content": "Be brief."}, )"
    R"({"role": "user", "content": "<s>1+1 \u00e4"}, )"
    R"({"role": "assistant", "content": null, "tool_calls": [{"type": )"
    R"("function", "function": {"name": "add", "arguments": "{\"a\": 1}"}}]}, )"
    R"({"role": "tool", "content": "2"}, )"
    R"({"role": "assistant", "content": "It is 2.<end>"}], )"
    R"("tools": [{"name": "add"}]})";

constexpr const char* kPairs =
    "\xEF\xBB\xBF{\"prompt\": \"a\", \"chosen\": \"yes\", \"rejected\": "
    "\"no\"}\r\n\n"
    "{\"chosen\": [{\"role\": \"user\", \"content\": \"b\"}, {\"role\": "
    "\"assistant\", \"content\": \"c\"}], \"rejected\": [{\"role\": \"user\", "
    "\"content\": \"b\"}, {\"role\": \"assistant\", \"content\": \"d\"}]}\n";

// Templates differ in what they refuse and in how turns depend on later ones.
constexpr const char* kTemplate =
    "{% for m in messages %}<s>{{ m.role }}\n"
    "{% if m.role == 'assistant' and loop.last %}<think></think>{% endif %}"
    "{{ m.content | trim }}{% for c in m.tool_calls or [] %}"
    "{{ c.function.arguments | tojson }}{% endfor %}<end>\n{% endfor %}"
    "{% if add_generation_prompt %}<s>assistant\n{% endif %}";

// As `mlxx train` does. A sample that is accepted has something to learn, and
// nothing of it lies outside of the batch.
void use(
    const std::filesystem::path& file,
    const text::Tokenizer& tokenizer,
    const text::ChatTemplate& chat_template,
    bool preference) {
  data::DataOptions options;
  options.preference = preference;
  options.mask_prompt = true;
  options.max_length = 64;
  options.batch_size = 2;
  options.pack = preference;
  auto data =
      data::open_training_data(file, tokenizer, &chat_template, options);
  for (int64_t i = 0; i < data->batches_per_epoch(); ++i) {
    data::Batch batch = data->batch(i);
    size_t size =
        static_cast<size_t>(batch.rows) * static_cast<size_t>(batch.length);
    if (batch.target_count() == 0 || batch.tokens.size() != size ||
        batch.targets.size() != size || batch.targets[0] != 0) {
      throw std::logic_error("a batch that nothing can be learned from");
    }
    data::batch_as_text(batch, tokenizer);
  }
}

}  // namespace

std::vector<MutationFormat> training_mutation_formats(
    const TemporaryFolder& folder) {
  auto tokenizer = generate::tiny_tokenizer();
  auto chat_template = text::ChatTemplate::compile(kTemplate, "<s>", "</s>");
  auto format =
      [&](const char* name, const char* seed, size_t head, bool preference) {
        auto file = folder.path() / (std::string(name) + ".jsonl");
        return MutationFormat{
            name,
            seed,
            head,
            [=, &folder](const std::string& content) {
              folder.write(file.filename().string(), content);
              use(file, *tokenizer, *chat_template, preference);
            }};
      };
  return {
      format("chats", kChat, 0, false),
      format("pairs", kPairs, std::string_view(kPairs).size(), true)};
}

}  // namespace mlxx
