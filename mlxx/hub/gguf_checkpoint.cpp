#include "mlxx/hub/gguf_checkpoint.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <thread>

#include <nlohmann/json.hpp>

#include "mlxx/base/error.h"
#include "mlxx/hub/gguf_architecture.h"
#include "mlxx/hub/gguf_rows.h"
#include "mlxx/hub/gguf_tokenizer.h"

namespace mlxx::hub {

namespace {

// More threads than this only wait for memory.
constexpr int kRepackThreads = 4;

class GgufCheckpoint : public Checkpoint {
 public:
  explicit GgufCheckpoint(const std::filesystem::path& path)
      : path_(path), file_(path) {
    refuse_parts();
    const GgufArchitecture& architecture = find_gguf_architecture(file_);
    norms_plus_one_ = architecture.norms_plus_one;
    list_tensors(architecture);
    config_ = architecture.make_config(file_);
    order_rows(architecture);
    add_special_tokens();
  }

  const std::filesystem::path& path() const override {
    return path_;
  }
  std::string format() const override {
    return "gguf";
  }
  const Json& config() const override {
    return config_;
  }
  const Json& generation_config() const override {
    return generation_config_;
  }
  const TextFiles& text() const override {
    std::call_once(text_made_, [this] {
      file_.file().check_size();
      text_ = text_beside_tokenizer();
      check_gguf_vocabulary(file_.metadata(), *vocabulary_);
      text_.tokenizer_json =
          make_gguf_tokenizer_json(file_.metadata(), *vocabulary_);
      vocabulary_.reset();
    });
    return text_;
  }
  std::string tokenizer_digest() const override {
    file_.file().check_size();
    return gguf_tokenizer_digest(file_.metadata());
  }
  const TextFiles& text_beside_tokenizer() const override {
    std::call_once(beside_made_, [this] {
      file_.file().check_size();
      if (!vocabulary_) {
        vocabulary_ = read_unchecked_gguf_vocabulary(file_.metadata());
      }
      beside_tokenizer_ =
          make_gguf_text_beside_tokenizer(file_.metadata(), *vocabulary_);
    });
    return beside_tokenizer_;
  }
  const std::vector<TensorInfo>& tensors() const override {
    return infos_;
  }
  uint64_t file_bytes() const override {
    return file_.file().size();
  }

  Weight load(const std::string& name, const LoadDtype& dtype) const override {
    auto found = sources_.find(name);
    if (found == sources_.end()) {
      fail(ErrorKind::not_found, place(), "there is no tensor '{}'", name);
    }
    const Source& source = found->second;
    std::call_once(pool_made_, [this] {
      auto processors = static_cast<int>(std::thread::hardware_concurrency());
      pool_ = std::make_unique<ThreadPool>(
          std::clamp(processors, 1, kRepackThreads));
    });
    Weight weight = repack_gguf(
        file_.file(),
        *source.tensor,
        source.order,
        dtype.scales,
        *pool_);
    if (norms_plus_one_ && !weight.scales && name.ends_with("norm.weight")) {
      // Exact: the converter added in float32.
      weight.weight =
          mx::subtract(mx::astype(weight.weight, mx::float32), mx::array(1.0f));
      weight.weight.eval();
    }
    return weight;
  }

  std::unique_ptr<const QuantizedRows> rows(
      const std::string& name) const override {
    auto found = sources_.find(name);
    return found == sources_.end()
        ? nullptr
        : gguf_rows(file_.file(), *found->second.tensor, found->second.order);
  }

 private:
  struct Source {
    const GgufTensor* tensor;
    RowOrder order;
  };

  std::string place() const {
    return path_.string();
  }

  void refuse_parts() const {
    auto parts = file_.metadata().integer_if("split.count", 0, INT32_MAX);
    if (parts.value_or(1) > 1) {
      fail(
          ErrorKind::unsupported,
          place(),
          "one of {} parts of a split GGUF file; merge them with "
          "'llama-gguf-split --merge'",
          *parts);
    }
  }

  void list_tensors(const GgufArchitecture& architecture) {
    for (const auto& tensor : file_.tensors()) {
      auto name = hub_tensor_name(architecture, tensor.name, place());
      if (!name) {
        continue;
      }
      infos_.push_back({
          .name = *name,
          .shape = tensor.shape,
          .stored = std::string(tensor.type->name),
          .nbytes = tensor.nbytes,
          .quantization = gguf_quantization(tensor, place()),
          .loads_as = gguf_loads_as(tensor),
      });
      sources_[*name] = {&tensor, {}};
    }
    std::ranges::sort(infos_, {}, &TensorInfo::name);
  }

  void order_rows(const GgufArchitecture& architecture) {
    for (auto& [name, source] : sources_) {
      source.order = architecture.row_order(config_, name);
      int64_t head_rows = source.order.head_rows;
      if (head_rows == 0) {
        continue;
      }
      const auto& shape = source.tensor->shape;
      if (head_rows % 2 != 0 || shape.size() > 2 || shape[0] % head_rows != 0) {
        fail(
            ErrorKind::bad_file,
            place(),
            "tensor '{}' of shape [{}] holds no heads of {}",
            source.tensor->name,
            fmt::join(shape, ", "),
            head_rows);
      }
    }
  }

  // The main end token goes where config.json has it, all of them where
  // generation_config.json has them. A file without a vocabulary (weights
  // only) has none.
  void add_special_tokens() {
    const GgufMetadata& metadata = file_.metadata();
    if (!metadata.has("tokenizer.ggml.tokens")) {
      return;
    }
    vocabulary_ = read_unchecked_gguf_vocabulary(metadata);
    const GgufVocabulary& vocabulary = *vocabulary_;
    for (const char* role : {"bos", "eos"}) {
      if (auto id = gguf_special_token(metadata, vocabulary, role)) {
        config_[std::string(role) + "_token_id"] = *id;
      }
    }
    auto ends = gguf_end_tokens(metadata, vocabulary);
    if (!ends.empty()) {
      generation_config_["eos_token_id"] = ends;
    }
  }

  std::filesystem::path path_;
  GgufFile file_;
  bool norms_plus_one_ = false;
  Json config_;
  Json generation_config_ = Json::object();
  std::vector<TensorInfo> infos_;
  std::map<std::string, Source> sources_;
  // From opening, or the first use, until text() has used it.
  mutable std::optional<GgufVocabulary> vocabulary_;
  mutable std::once_flag text_made_;
  mutable TextFiles text_;
  mutable std::once_flag beside_made_;
  mutable TextFiles beside_tokenizer_;
  mutable std::once_flag pool_made_;
  mutable std::unique_ptr<ThreadPool> pool_;
};

}  // namespace

std::shared_ptr<const Checkpoint> open_gguf_checkpoint(
    const std::filesystem::path& path) {
  return std::make_shared<GgufCheckpoint>(path);
}

}  // namespace mlxx::hub
